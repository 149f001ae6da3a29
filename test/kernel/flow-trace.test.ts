/** Live traces: what the kernel says about real packets, and that nothing of a trace stays. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import test, { type ExecutionContext } from "ava";
import { ipOf, parseIp } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { AttachmentPlan } from "../../daemon/containers/attachment-plan.ts";
import { liveTraceOf, traceLive, type TracedPacket } from "../../daemon/trace/live.ts";
import { containerSender } from "../../daemon/trace/sender.ts";
import { run } from "../../linux/processes/command.ts";
import { usualRelayPort } from "../../network/firewall/policed.ts";
import { compile, type Decisions } from "../../policy/compile.ts";
import { readPolicy } from "../../policy/read-policy.ts";
import { type DriverUnderTest, driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
  podMac,
  published,
} from "../lab/firewall-site.ts";
import { four, six, udp } from "../lab/forged-frames.ts";
import { sendFrames } from "../lab/frames.ts";
import { until } from "../lab/until.ts";

const { signal } = new AbortController();
const families = [4, 6] as const;

const policy = (fields: object): Decisions =>
  compile([readPolicy({ name: "p", ...fields })], {
    pods: [],
    host: families.map((family) => parseIp(hostAddresses[family].gateway)),
    hostServices: [],
    cloudMetadata: false,
  });
const all = ["0.0.0.0/0", "::/0"];
const sends = policy({
  default: "deny",
  rules: [
    { name: "shut", action: "deny", ports: [9002] },
    { name: "web", action: "allow", cidrs: all, protocol: "tcp", ports: [9001] },
    { name: "pods", action: "allow", cidrs: ["192.168.123.0/24", "fd00:123::/64"] },
  ],
});
const receives = policy({
  ingress: { default: "allow", rules: [{ name: "shy", action: "deny", ports: [81] }] },
});

const networks = [
  { name: "default", subnets: [{ cidr: "192.168.123.0/24" }, { cidr: "fd00:123::/64" }] },
];

interface Sending {
  readonly protocol: "tcp" | "udp";
  readonly packets: number;
  readonly timeoutMs: number;
}

/** Pods 2 and 3, each with a policy, of which the second publishes a port. */
async function openStage(options: DriverUnderTest["options"]) {
  const two = dualPod(2);
  const three = dualPod(
    3,
    families.map((family) => published(3, family, { hostPort: 8080, podPort: 80 })),
  );
  const policies = new Map([
    [two.key, sends],
    [three.key, receives],
  ]);
  const site = await FirewallSite.open(options, { policies });
  bridgeNf("1");
  await site.ensure(dualNetwork());
  for (const [n, pod] of [
    [2, two],
    [3, three],
  ] as const) {
    await site.pod(n);
    await site.ensure(pod);
  }
  await site.serve("outside", "tcp", 9001, 9002);
  await site.serve("pod3", "tcp", 80, 81);
  const [port] = two.ports;
  const sender = {
    text: "pod two",
    interfaces: families.map((family) => ({
      guestName: "eth0" as IfName,
      network: "default" as never,
      bridge: "hyper0" as IfName,
      link: port?.tap as IfName,
      addresses: (port?.guestAddresses ?? []).filter(
        (each) => each.includes(":") === (family === 6),
      ),
      gateways: [{ gateway: parseIp(hostAddresses[family].gateway) }],
      owner: { kind: "pod", key: two.key } as const,
    })),
    routes: [],
  };
  const parts = {
    config: { relayPort: usualRelayPort, disableIptables: false },
    network: site.host,
    policies: { decisionsOf: ({ key }: { key: string }) => policies.get(key) },
    networks: { list: () => networks },
    addresses: {
      holderAt: (_network: string, ip: string) =>
        three.ports[0]?.guestAddresses.map(ipOf).some((each) => each === ip)
          ? three.key
          : undefined,
    },
    records: { get: () => ({}) },
  } as unknown as Parameters<typeof traceLive>[0];
  const tables = async (): Promise<string> => (await run(["nft", "list", "tables"])).stdout;
  return {
    site,
    tables,
    /** The packets that are traced while something is sent. */
    async traced(
      to: string,
      port: number,
      send: () => Promise<unknown>,
      { protocol = "tcp", packets = 1, timeoutMs = 20_000 }: Partial<Sending> = {},
    ): Promise<TracedPacket[]> {
      const live = liveTraceOf({ sender, ip: parseIp(to), protocol, port });
      const found: TracedPacket[] = [];
      let sent: Promise<unknown> | undefined;
      for await (const packet of traceLive(parts, live, { packets, timeoutMs }, signal)) {
        sent ??= send();
        if (packet !== undefined) found.push(packet);
      }
      await sent;
      return found;
    },
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}

const parts = ({ rules }: TracedPacket): string[] =>
  rules.flatMap(({ standsFor }) => (standsFor === "" ? [] : [standsFor]));

for (const { name, options } of driversUnderTest)
  test.serial(
    `a real packet's rules are reported, with what they stand for (${name})`,
    async (t) => {
      await using stage = await openStage(options);
      const { site } = stage;
      // The kernel traces no rules of iptables-legacy.
      const legacy = options.iptables === "legacy";
      const one = async (...[to, port, ...more]: Parameters<typeof stage.traced>) => {
        const [packet, ...others] = await stage.traced(to, port, ...more);
        t.deepEqual(others, [], `${to} ${port}`);
        t.truthy(packet, `${to} ${port}: a packet came`);
        const family = to.includes(":") ? 6 : 4;
        const own = family === 6 ? `[${podAddress(2, 6)}]` : podAddress(2, 4);
        t.true(packet?.packet.includes(` ${own}:`), packet?.packet);
        return packet as TracedPacket;
      };
      const ask = (to: string, port: number) => () => site.ask("pod2", "tcp", to, port);
      for (const family of families) {
        const outside = outsideAddress[family];
        const passes = await one(outside, 9001, ask(outside, 9001));
        t.is(passes.verdict, "accept");
        const stood = parts(passes);
        t.true(stood.includes("p/web"), stood.join(", "));
        t.true(stood[0]?.startsWith("guard"), "the guard is the first");
        t.is(stood.includes("masquerade"), !legacy, stood.join(", "));

        const refused = await one(outside, 9002, ask(outside, 9002));
        t.is(refused.verdict, "drop");
        t.is(parts(refused).at(-1), "p/shut");
        t.true(
          refused.rules.some(
            ({ rule, standsFor: of }) => of === "p/shut" && /dport 9002/.test(rule),
          ),
        );

        const { gateway, outer } = hostAddresses[family];
        const host = await one(gateway, 9009, ask(gateway, 9009));
        t.deepEqual([host.verdict, parts(host).at(-1)], ["drop", "host"]);

        const over = await one(podAddress(3, family), 80, ask(podAddress(3, family), 80));
        t.is(over.verdict, "accept");
        t.true(parts(over).includes("p/pods"), parts(over).join(", "));
        const shy = await one(podAddress(3, family), 81, ask(podAddress(3, family), 81));
        t.deepEqual([shy.verdict, parts(shy).at(-1)], ["drop", "p/shy"], "the receiver's policy");

        const translated = await one(outer, 8080, ask(outer, 8080));
        t.is(translated.verdict, "accept");
        t.true(parts(translated).includes("published"), parts(translated).join(", "));
        t.true(parts(translated).includes("p/pods"), "what it was translated to decides");

        // Its own address, but another MAC.
        const header = { dst: podMac(9), src: podMac(3) };
        const forged =
          family === 4
            ? four(
                header,
                { saddr: podAddress(2, 4), daddr: outside, protocol: 17 },
                udp(7, 7),
                "x",
              )
            : six(header, { saddr: podAddress(2, 6), daddr: outside, next: 17 }, udp(7, 7), "x");
        const foreign = await one(outside, 7, () => sendFrames(site, "pod2", "eth0", [forged]), {
          protocol: "udp",
        });
        t.deepEqual([foreign.verdict, parts(foreign).at(-1)], ["drop", "guard: mac"]);
      }
      t.notRegex(await stage.tables(), /podnet_trace/);
    },
  );

const nft = { firewall: "nftables", iptables: "auto" } as const;

test.serial("only the flow is traced, so many of its packets, and only for its time", async (t) => {
  await using stage = await openStage(nft);
  const { site } = stage;
  const outside = outsideAddress[4];
  // Its other ports, another pod, and answers are none of it.
  const others = async (): Promise<void> => {
    await site.ask("pod2", "tcp", outside, 9002);
    await site.ask("pod3", "tcp", outside, 9001);
    await site.ask("outside", "tcp", podAddress(2, 4), 9001).catch(() => {});
  };
  t.deepEqual(await stage.traced(outside, 9001, others, { timeoutMs: 1500 }), []);
  // A flow that never pauses: the kernel itself stops.
  await site.serve("outside", "udp", 9053);
  const many = await stage.traced(outside, 9053, () => site.talk("pod2", outside, 9053), {
    protocol: "udp",
    packets: 3,
  });
  t.is(many.length, 3);
  const table = async (): Promise<string> => (await run(["nft", "list", "ruleset"])).stdout;
  const seen: string[] = [];
  await stage.traced(
    outside,
    9001,
    async () => {
      seen.push(await table());
      await site.ask("pod2", "tcp", outside, 9001);
    },
    { packets: 16, timeoutMs: 2000 },
  );
  t.regex(seen[0] ?? "", /limit rate 1\/day burst 16 packets/);
  t.notRegex(await stage.tables(), /podnet_trace/);
});

const holder = `
const { openFlowTrace } = await import("${import.meta.dirname}/../../network/firewall/flow-trace.ts");
const { openHostKernel } = await import("${import.meta.dirname}/../../network/kernel/kernel.ts");
const trace = await openFlowTrace(openHostKernel(), {
  link: "tap2", sources: ["192.168.123.2"], destination: "192.0.2.20", protocol: "icmp", packets: 1,
});
console.log("open");
await trace.next(600000, new AbortController().signal);
`;

async function killed(t: ExecutionContext, end: NodeJS.Signals): Promise<void> {
  const tables = async (): Promise<string> => (await run(["nft", "list", "tables"])).stdout;
  const child = spawn(process.execPath, ["--input-type=module", "-e", holder], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  // Also where an assertion fails: the test's process would wait for it.
  t.teardown(() => child.kill("SIGKILL"));
  const exited = once(child, "exit");
  await once(createInterface({ input: child.stdout }), "line");
  const [, name = ""] = /(podnet_trace_\w+)/.exec(await tables()) ?? [];
  t.regex(name, /^podnet_trace_[0-9a-f]{8}$/);
  // Another program cannot change it.
  await t.throwsAsync(run(["nft", "delete", "table", "bridge", name]));
  child.kill(end);
  await exited;
  await until("the table is gone", async () => !(await tables()).includes("podnet_trace"));
  t.pass();
}

test.serial("a trace goes with the process that has it, however that ends", async (t) => {
  await using _stage = await openStage(nft);
  await killed(t, "SIGKILL");
  await killed(t, "SIGTERM");
});

test("a container sends from all of its attachments", (t) => {
  const plan = (id: string, network: string, address: string) =>
    ({
      id,
      containerId: "c",
      ifName: `eth${id}`,
      network,
      bridge: `br${id}`,
      addresses: [address],
      gateways: [],
    }) as unknown as AttachmentPlan;
  const sender = containerSender([plan("1", "a", "10.1.0.2/24"), plan("2", "b", "10.2.0.2/24")]);
  const asked = { sender, protocol: "tcp", port: 80 } as const;
  t.like(liveTraceOf({ ...asked, ip: parseIp("10.2.0.9") }), {
    from: { owner: { kind: "attachment", key: "2" } },
    flow: { link: "pc2", sources: ["10.2.0.2"], port: 80 },
  });
  for (const ip of ["10.1.0.2", "10.3.0.1", "2001:db8::1"])
    t.throws(() => liveTraceOf({ ...asked, ip: parseIp(ip) }), { code: "INVALID_ARGUMENT" }, ip);
  t.throws(() => liveTraceOf(asked), { message: /one address/ });
  t.throws(() => containerSender([]), { instanceOf: RangeError });
});
