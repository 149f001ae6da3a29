import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { readSysctl } from "../../linux/sysctl.ts";
import type { PodFragment } from "../../network/model/desired.ts";
import type { Decisions } from "../../policy/compile.ts";
import { type DriverUnderTest, driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  bridgeNf,
  decisions,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  podAddress,
  podLinkLocal,
  podMac,
  published,
} from "../lab/firewall-site.ts";
import { heardWhile, sendFrames } from "../lab/frames.ts";

const { signal } = new AbortController();
const families = [4, 6] as const;
const nftables: DriverUnderTest["options"] = { firewall: "nftables", iptables: "auto" };

/** Of its neighbours, a pod reaches this one's port 81. */
const only81 = (n: number): Decisions =>
  decisions({
    default: "deny",
    rules: [
      {
        name: "81",
        action: "allow",
        cidrs: families.map((family) => podAddress(n, family)),
        ports: [81],
      },
    ],
  });

interface Stage extends AsyncDisposable {
  readonly site: FirewallSite;
  /** Gives pods a policy, or takes it from them; all pods are looked at. */
  police(decided: Decisions | undefined, ...pods: readonly PodFragment[]): Promise<void>;
  /** Whether frames on the bridge pass the rules. */
  filters(): Promise<boolean>;
}

/** Pods 2, 3 and 4 on a host whose bridges' frames pass no rules. */
async function openStage(options = nftables): Promise<Stage> {
  const policies = new Map<string, Decisions>();
  const site = await FirewallSite.open(options, { policies });
  bridgeNf("0");
  await site.ensure(dualNetwork());
  const all = [2, 3, 4].map((n) => dualPod(n));
  for (const [i, pod] of all.entries()) {
    await site.pod(i + 2);
    await site.ensure(pod);
  }
  await site.serve("pod3", "tcp", 81, 82);
  return {
    site,
    async police(decided, ...pods) {
      const changed = pods.map(({ key }) => key);
      for (const key of changed) {
        policies.delete(key);
        if (decided !== undefined) policies.set(key, decided);
      }
      const others = all.filter(({ key }) => !changed.includes(key));
      await site.host.apply({ kind: "policies", now: () => [...pods, ...others] }, signal);
      await site.host.remove({ kind: "denied-connections", of: pods }, signal);
    },
    async filters() {
      const shown = await site.inside("host", "ip", "-d", "link", "show", "dev", "hyper0");
      return /nf_call_iptables 1 nf_call_ip6tables 1/.test(shown);
    },
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}

/** What comes of connections to pod 3, at both of its ports and addresses. */
async function toThird(site: FirewallSite, from: string): Promise<string> {
  const found: string[] = [];
  for (const family of families)
    for (const port of [81, 82]) {
      const said = await site.ask(from, "tcp", podAddress(3, family), port);
      found.push(said.endsWith(` ${port}`) ? "passes" : said);
    }
  return found.join(", ");
}

const allPass = "passes, passes, passes, passes";
const not82 = "passes, refused, passes, refused";

/** The host's setting for all bridges is the host's: podnet never writes it. */
const unset = (t: ExecutionContext): void => {
  for (const name of ["iptables", "ip6tables"])
    t.is(readSysctl(`net.bridge.bridge-nf-call-${name}`), "0");
};

for (const { name, options } of driversUnderTest)
  test.serial(
    `between pods on one bridge a policy decides, whatever the host's setting (${name})`,
    async (t) => {
      await using stage = await openStage(options);
      const { site } = stage;
      t.is(await toThird(site, "pod2"), allPass);
      t.false(await stage.filters(), "a bridge without policies is as bridges are");
      await stage.police(only81(3), dualPod(2));
      t.true(await stage.filters());
      t.is(await toThird(site, "pod2"), not82);
      t.is(await toThird(site, "pod4"), allPass, "no policy");
      const ingress = { default: "deny", rules: [{ name: "81", action: "allow", ports: [81] }] };
      await stage.police(decisions({ ingress }), dualPod(3));
      await stage.police(undefined, dualPod(2));
      t.is(await toThird(site, "pod2"), not82);
      t.regex(await site.ask("host", "tcp", podAddress(3, 4), 82), / 82$/, "the host");
      await site.host.remove(dualPod(3), signal);
      t.false(await stage.filters(), "with the last pod of a policy");
      unset(t);
    },
  );

test.serial("a bridge is as it was when no policy is left, and no table either", async (t) => {
  await using stage = await openStage();
  const { site } = stage;
  await stage.police(only81(3), dualPod(2), dualPod(4));
  await stage.police(undefined, dualPod(2));
  t.is(await toThird(site, "pod4"), not82);
  t.true(await stage.filters(), "another pod's policy");
  await stage.police(undefined, dualPod(4));
  t.is(await toThird(site, "pod4"), allPass);
  t.false(await stage.filters());
});

test.serial("the filter of a bridge is put back, and a bridge made anew has it", async (t) => {
  await using stage = await openStage();
  const { site } = stage;
  await stage.police(only81(3), dualPod(2));
  const change = ["type", "bridge", "nf_call_iptables", "0"];
  await site.inside("host", "ip", "link", "set", "dev", "hyper0", ...change);
  t.false(await stage.filters());
  const look = { heal: () => true, linksOnly: true };
  const seen = await site.host.inspect(() => dualNetwork(), look, signal);
  t.deepEqual(
    seen.found.map(({ subject }) => subject),
    ["link hyper0 nf_call"],
  );
  t.is(await toThird(site, "pod2"), not82);
  await site.inside("host", "ip", "link", "delete", "dev", "hyper0");
  await site.host.inspect(() => dualNetwork(), look, signal);
  t.true(await stage.filters(), "before its ports join it");
  await site.ensure(dualPod(2), dualPod(3));
  t.is(await toThird(site, "pod2"), not82);
});

for (const { name, options } of driversUnderTest)
  test.serial(
    `with a policy on the bridge, published ports and addresses are as they were (${name})`,
    async (t) => {
      await using stage = await openStage(options);
      const { site } = stage;
      const ports = families.map((family) => published(3, family, { hostPort: 8081, podPort: 81 }));
      await site.ensure(dualPod(3, ports));
      const seen = async (): Promise<string[]> => {
        const found: string[] = [];
        for (const family of families)
          for (const from of ["pod2", "pod3", "outside"])
            found.push(await site.ask(from, "tcp", hostAddresses[family].outer, 8081));
        for (const family of families)
          found.push(await site.ask("pod2", "tcp", podAddress(3, family), 81));
        return found;
      };
      const before = await seen();
      t.true(
        before.every((said) => said.endsWith(" 81")),
        before.join(", "),
      );
      await stage.police(decisions({ default: "allow" }), dualPod(3, ports));
      t.true(await stage.filters());
      t.deepEqual(await seen(), before);
    },
  );

test.serial(
  "another program's rule that drops all it does not know drops no pods' frames",
  async (t) => {
    await using stage = await openStage({ firewall: "iptables", iptables: "nft" });
    const { site } = stage;
    await site.inside("host", "iptables-nft", "-P", "FORWARD", "DROP");
    await site.inside("host", "ip6tables-nft", "-P", "FORWARD", "DROP");
    await stage.police(only81(3), dualPod(2));
    t.is(await toThird(site, "pod4"), allPass);
    t.is(await toThird(site, "pod2"), not82);
  },
);

test.serial("what no policy can judge passes neither from its pod nor to it", async (t) => {
  await using stage = await openStage();
  const { site } = stage;
  // Receivers pass over a tag of VLAN 0.
  const tagged = async (n: number): Promise<boolean> => {
    const ends = { saddr: podAddress(n, 4), daddr: podAddress(3, 4) };
    const plain = { dst: podMac(3), src: podMac(n), ...ends, udp: [81, 81] as const };
    const frames = [
      { ...plain, vlans: [0], text: `tagged by pod ${n}` },
      { ...plain, text: `allowed of pod ${n}` },
    ];
    const heard = await heardWhile(
      { site, machine: "pod3", link: "eth0" },
      frames.map(({ text }) => text),
      () => sendFrames(site, `pod${n}`, "eth0", frames),
    );
    t.true(heard.includes(`allowed of pod ${n}`));
    return heard.length === 2;
  };
  // No policy names these addresses.
  const linkLocal = (n: number): Promise<string> =>
    site.ask(`pod${n}`, "tcp", `${podLinkLocal(3)}%eth0`, 82);
  const inVain = (n: number): Promise<string> =>
    site.askInVain(`pod${n}`, "tcp", `${podLinkLocal(3)}%eth0`, 82);
  t.true(await tagged(2));
  t.regex(await linkLocal(2), / 82$/);
  await stage.police(only81(3), dualPod(2));
  t.false(await tagged(2));
  t.is(await inVain(2), "silence");
  t.true(await tagged(4), "no policy");
  t.regex(await linkLocal(4), / 82$/, "no policy");
  const ingress = { default: "deny", rules: [{ name: "81", action: "allow", ports: [81] }] };
  await stage.police(decisions({ ingress }), dualPod(3));
  t.false(await tagged(4));
  t.is(await inVain(4), "silence");
});

/** A server that sends to whoever is connected, says who has left, and goes on. */
const talker = `
require("node:net").createServer((socket) => {
  const from = socket.remoteAddress.replace(/^::ffff:/, "");
  const often = setInterval(() => socket.write("x"), 20);
  console.log("comes " + from);
  socket.on("error", ({ code }) => console.log(code + " " + from)).on("close", () => clearInterval(often));
}).listen(90, "::", () => console.log("up"));
`;
/** Says when it has heard more, after each word that it is given. */
const hearer = `
const socket = require("node:net").connect(90, ${JSON.stringify(podAddress(3, 4))});
socket.on("error", () => {});
process.stdin.on("data", () => socket.once("data", () => console.log("heard")));
`;

test.serial(
  "a connection from before its bridge was filtered ends with a policy, whoever sends",
  async (t) => {
    await using stage = await openStage();
    const { site } = stage;
    const started: ChildProcess[] = [];
    const run = (machine: string, script: string) => {
      const [program, ...argv] = site.command(machine, process.execPath, "-e", script);
      const child = spawn(program, argv, { stdio: ["pipe", "pipe", "ignore"] });
      started.push(child);
      return { child, lines: createInterface({ input: child.stdout })[Symbol.asyncIterator]() };
    };
    using _ended = { [Symbol.dispose]: () => started.forEach((child) => child.kill("SIGKILL")) };
    const server = run("pod3", talker);
    // (Without a limit the children of a test that fails would outlive it.)
    const said = (): Promise<unknown> =>
      Promise.race([
        server.lines.next().then(({ value }) => value),
        delay(10_000, "nothing", { ref: false }),
      ]);
    t.is(await said(), "up");
    run("pod2", hearer);
    t.is(await said(), `comes ${podAddress(2, 4)}`);
    const other = run("pod4", hearer);
    t.is(await said(), `comes ${podAddress(4, 4)}`);
    await stage.police(only81(3), dualPod(2));
    t.is(await said(), `ECONNRESET ${podAddress(2, 4)}`);
    other.child.stdin.write("more");
    t.is((await other.lines.next()).value, "heard", "no policy");
  },
);
