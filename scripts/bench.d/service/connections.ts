import { spawn } from "node:child_process";
import type { Cidr, Ip } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import { run } from "../../../linux/processes/command.ts";
import type { ServiceDesired } from "../../../network/model/service.ts";
import {
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  podAddress,
} from "../../../test/lab/firewall-site.ts";
import { row, summarise } from "../../measure.ts";

const { signal } = new AbortController();
const counts = [1, 10, 1000] as const;
const virtual = "10.73.0.10";
/** A rule of the benchmark's own translates this one. */
const direct = "10.99.0.10";
const firstPort = 20_000;
const seconds = 2;

/** Connects again and again, eight at a time; prints how often in a second. */
const asking = `
  const { connect } = require("node:net");
  const [address, seconds] = process.argv.slice(1);
  const end = performance.now() + Number(seconds) * 1000;
  let made = 0, failed = 0, open = 0;
  const next = () => {
    if (performance.now() > end) {
      if (open === 0) console.log(failed > 0 ? NaN : made / Number(seconds));
      return;
    }
    open++;
    const socket = connect(80, address);
    socket.on("connect", () => { made++; socket.resetAndDestroy(); });
    socket.on("error", () => { failed++; });
    socket.on("close", () => { open--; next(); });
  };
  for (let i = 0; i < 8; i++) next();`;

/** Listens at as many ports as there are backends. */
const serving = `
  const { createServer } = require("node:net");
  let left = ${counts.at(-1)};
  for (let i = 0; i < ${counts.at(-1)}; i++)
    createServer((socket) => socket.on("error", () => {}).resume()).listen(${firstPort} + i, "0.0.0.0", () => {
      if (--left === 0) console.log("ready");
    });`;

/** Connections a second through services, of those by one rule. */
export async function measureServiceConnections(rounds: number): Promise<Record<string, number>> {
  await using site = await FirewallSite.open({ firewall: "nftables", iptables: "auto" });
  bridgeNf("0");
  await site.ensure(dualNetwork({ connections: 0 }));
  for (const n of [2, 3]) {
    await site.pod(n);
    await site.ensure(dualPod(n));
  }
  using server = await serve(site);
  void server;
  await translateDirectly();
  const ratios = new Map<number, number[]>(counts.map((count) => [count, []]));
  row("connections a second", "direct", ...counts.map((count) => `${count}`));
  for (let round = 0; round < rounds; round++) {
    const found: number[] = [];
    const plain: number[] = [];
    for (const count of counts) {
      await site.host.apply(
        { kind: "services", now: () => [service(count)], pods: () => [] },
        signal,
      );
      // Who goes first takes turns.
      const targets = round % 2 === 0 ? [virtual, direct] : [direct, virtual];
      const rates = new Map<string, number>();
      for (const target of targets) rates.set(target, await rateOf(site, target));
      const [ours = NaN, theirs = NaN] = [rates.get(virtual), rates.get(direct)];
      found.push(ours);
      plain.push(theirs);
      ratios.get(count)?.push(ours / theirs);
    }
    row(`round ${round + 1}`, summarise(plain).median, ...found);
  }
  const median = (count: number): number => summarise(ratios.get(count) ?? []).median;
  return {
    cps_ratio: summarise([...ratios.values()].flat()).median,
    cps_ratio_1: median(1),
    cps_ratio_10: median(10),
    cps_ratio_1000: median(1000),
  };
}

const service = (count: number): ServiceDesired => ({
  name: "web",
  network: "default",
  bridge: "hyper0" as IfName,
  subnets: ["192.168.123.0/24" as Cidr],
  addresses: [virtual as Ip],
  ports: [
    {
      number: 1,
      protocol: "tcp",
      port: 80,
      backends: Array.from({ length: count }, (_, i) => ({
        address: podAddress(3, 4) as Ip,
        port: firstPort + i,
        weight: 1,
      })),
    },
  ],
});

/** With the same masquerade that a client of the backend's own network needs. */
async function translateDirectly(): Promise<void> {
  const to = `${podAddress(3, 4)}:${firstPort}`;
  const commands = [
    "add table ip direct",
    "add chain ip direct pre { type nat hook prerouting priority -100; }",
    "add chain ip direct post { type nat hook postrouting priority 100; }",
    `add rule ip direct pre ip daddr ${direct} tcp dport 80 dnat to ${to}`,
    `add rule ip direct post ct original ip daddr ${direct} masquerade`,
  ];
  await run(["nft", "-f", "-"], { stdin: `${commands.join("\n")}\n` });
}

async function rateOf(site: FirewallSite, address: string): Promise<number> {
  const said = await site.inside("pod2", process.execPath, "-e", asking, address, `${seconds}`);
  const rate = Number(said);
  if (!(rate > 0)) throw new Error(`Connections to ${address} failed: ${said}`);
  return rate;
}

async function serve(site: FirewallSite): Promise<Disposable> {
  const [program, ...args] = site.command("pod3", process.execPath, "-e", serving);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => child.stdout.once("data", resolve));
  return { [Symbol.dispose]: () => void child.kill("SIGKILL") };
}
