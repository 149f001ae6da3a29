import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { connectPodnet, type Podnet } from "../../../api/client.ts";
import { commands } from "../../../network/firewall/nftables/edit.ts";
import { modelOf } from "../../../network/firewall/nftables/guard-tables.ts";
import { policedPortElements } from "../../../network/firewall/nftables/policed-ports.ts";
import { policyChains, policyElements } from "../../../network/firewall/nftables/policy-table.ts";
import { portElements } from "../../../network/firewall/nftables/port-elements.ts";
import { usualRelayPort } from "../../../network/firewall/policed.ts";
import type { Element } from "../../../network/model/nftables-sets.ts";
import type { PolicyChain } from "../../../network/model/rules.ts";
import { type Lab, labAddresses, type Machine, openLab } from "../../../test/lab/lab.ts";
import { startPodnetd } from "../../../test/lab/podnetd.ts";
import { row, summarise } from "../../measure.ts";
import { crowded } from "./changes.ts";
import { allowing, other } from "./guarded-host.ts";

const gateway = "192.168.123.1";
const port = 7001;
const megabytes = 32;
const pings = 200;
/** Tables of the guard and of policies. */
const tables = [
  "bridge podnet",
  "bridge podnet_policy",
  "inet podnet_guard",
  "inet podnet_shares",
  "inet podnet_policy",
] as const;

/** Says how many milliseconds the bytes of each connection took, a line each. */
const sink = `
require("node:net").createServer({ allowHalfOpen: true }, (socket) => {
  let begin, last;
  socket.on("data", () => { last = performance.now(); begin ??= last; });
  socket.on("error", () => {});
  socket.on("end", () => { socket.end(); console.log(last - begin); });
}).listen(${port}, () => console.log("up"));
`;

/**
 * What a real guest, under software emulation, gets through to its host and by it to the LAN with
 * guard and policy, next to 1,000 other pods that have them, of what it gets while the kernel
 * passes over their tables.
 */
export async function measureGuest(rounds: number): Promise<Record<string, number>> {
  const directory = mkdtempSync(path.resolve(import.meta.dirname, "../../../build/bench-"));
  try {
    await using lab = await openLab("bench-");
    const config = `drift_s = 0\n[network]\nhost_access = ["tcp/${port}"]\n`;
    await using podnetd = await startPodnetd({ machine: lab.host, directory, config });
    using podnet = connectPodnet({ socket: podnetd.socket });
    return await measureIn(lab, podnet, rounds);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function measureIn(lab: Lab, podnet: Podnet, rounds: number) {
  await podnet.policies.apply({
    document: {
      name: "bench",
      applies_to: { labels: { role: "bench" } },
      default: "deny",
      rules: [{ name: "lan", action: "allow", cidrs: [labAddresses.lan] }],
    },
  });
  const spec = { name: "guest", labels: { role: "bench" } };
  const { pod } = await podnet.pods.create({ spec });
  const guest = pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "";
  await nft(lab.host, crowd());
  await lab.lan.run("ip", "route", "replace", "default", "via", labAddresses.hostOnLan);
  const ends = { host: await listen(lab.host), lan: await listen(lab.lan) };
  const ways = {
    host: () => sent(podnet, gateway, ends.host),
    lan: () => sent(podnet, labAddresses.lan, ends.lan),
    ping: () => roundTrip(lab.host, guest),
  } as const;
  type Way = keyof typeof ways;
  const names = Object.keys(ways) as Way[];
  const ratios: Record<Way, number[]> = { host: [], lan: [], ping: [] };
  for (const way of names) await ways[way]();
  row("of a guest, guarded and without, by round", "to host", "to LAN", "ping");
  try {
    for (let round = 0; round < rounds; round++) {
      const found = { guarded: new Map<Way, number>(), plain: new Map<Way, number>() };
      // Who goes first takes turns, too.
      for (const which of round % 2 === 0
        ? (["guarded", "plain"] as const)
        : (["plain", "guarded"] as const)) {
        await passOver(lab.host, which === "plain");
        for (const way of names) found[which].set(way, await ways[way]());
      }
      for (const way of names)
        ratios[way].push((found.guarded.get(way) ?? 0) / (found.plain.get(way) ?? Number.NaN));
      row(`round ${round + 1}, ratio`, ...names.map((way) => (ratios[way].at(-1) ?? 0).toFixed(3)));
    }
  } finally {
    for (const { child } of Object.values(ends)) child.kill("SIGKILL");
    await podnet.node.down({});
  }
  return {
    guest_ratio: summarise(ratios.host).median,
    guest_lan_ratio: summarise(ratios.lan).median,
    guest_latency_ratio: summarise(ratios.ping).median,
  };
}

/** The commands that give 1,000 other pods their elements. */
function crowd(): string {
  const pods = Array.from({ length: crowded.pods }, (_, i) => other(i + 1));
  const shared = Array.from({ length: crowded.policies }, (_, i) => allowing(9000, 10_000 + i));
  const decided = pods.map((each, i) => ({ each, decisions: shared[i % shared.length] }));
  const add = (table: string, elements: readonly Element[], fill: readonly PolicyChain[] = []) =>
    commands({ base: "keep", remove: [], add: elements, fill }, modelOf(table));
  return [
    ...add("bridge podnet", pods.flatMap(portElements)),
    ...add(
      "bridge podnet_policy",
      decided.flatMap(({ each, decisions }) => policedPortElements(each, decisions)),
    ),
    ...add(
      "inet podnet_policy",
      decided.flatMap(({ each, decisions }) => policyElements(each, decisions, usualRelayPort)),
      shared.flatMap((decisions) => policyChains(decisions, usualRelayPort)),
    ),
  ].join("\n");
}

/** A dormant table is there, and the kernel does not call its chains. */
const passOver = (host: Machine, isDormant: boolean): Promise<void> =>
  nft(
    host,
    tables.map((name) => `add table ${name} { ${isDormant ? "flags dormant;" : ""} }`).join("\n"),
  );

async function nft(host: Machine, text: string): Promise<void> {
  const child = host.spawn(["nft", "-f", "-"], { stdio: ["pipe", "inherit", "inherit"] });
  child.stdin?.end(text);
  const [code] = (await once(child, "exit")) as [number];
  if (code !== 0) throw new Error(`nft ended with ${code}`);
}

async function listen(machine: Machine) {
  const child = machine.spawn([process.execPath, "-e", sink], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (child.stdout === null) throw new Error("No output");
  const lines = createInterface({ input: child.stdout });
  const next = async (): Promise<string> => ((await once(lines, "line")) as [string])[0];
  await next();
  return { child, next };
}

/** Bytes in a millisecond, as the other end gets them. */
async function sent(
  podnet: Podnet,
  to: string,
  end: { readonly next: () => Promise<string> },
): Promise<number> {
  const script = `dd if=/dev/zero bs=65536 count=${megabytes * 16} 2>/dev/null | nc ${to} ${port}`;
  const took = end.next();
  const ended = Promise.withResolvers<void>();
  async function* input() {
    const start = { idOrName: "guest", args: ["sh", "-c", script] };
    yield { input: { case: "start" as const, value: start } };
    yield { input: { case: "closeStdin" as const, value: {} } };
    await ended.promise;
  }
  for await (const { output } of podnet.pods.exec(input())) if (output.case === "exit") break;
  ended.resolve();
  return (megabytes * 2 ** 20) / Number(await took);
}

/** Milliseconds from the host to the guest and back, on average. */
async function roundTrip(host: Machine, guest: string): Promise<number> {
  const said = await host.run("ping", "-q", "-n", "-i", "0.005", "-c", `${pings}`, guest);
  return Number(/= [\d.]+\/([\d.]+)\//.exec(said)?.[1]);
}
