/** What `podnet trace` says of a packet, next to a real one of the guest. */
import { once } from "node:events";
import { createInterface } from "node:readline";
import test from "ava";
import { labAddresses, type Machine } from "../lab/lab.ts";
import { until } from "../lab/until.ts";
import { addressOf, execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
const served = new DisposableStack();
const { lan, internet, hostOnLan } = labAddresses;
const gateway = "192.168.123.1";
const metadata = "169.254.169.254";

const server = `
const { createServer } = require("node:net");
const ports = process.argv.slice(1);
let open = 0;
for (const port of ports)
  createServer((socket) => socket.on("error", () => {}).end(port))
    .listen(Number(port), () => ++open === ports.length && console.log("up"));
`;

async function serve(machine: Machine, ...ports: string[]): Promise<void> {
  const child = machine.spawn([process.execPath, "-e", server, ...ports], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  served.defer(() => child.kill("SIGKILL"));
  if (child.stdout === null) throw new Error("No output");
  await once(createInterface({ input: child.stdout }), "line");
}

/** By name: the addresses of pods. */
const at = new Map<string, string>();

test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n");
  const { client, lab } = rig;
  await serve(lab.lan, "9001", "9002");
  await serve(lab.host, "9100");
  await lab.lan.run("ip", "route", "replace", "default", "via", labAddresses.hostOnLan);
  await lab.internet.run("ip", "address", "add", `${metadata}/32`, "dev", "lo");
  await client.networks.create({
    spec: { name: "far", subnets: [{ cidr: "10.7.0.0/24" }], cloudMetadata: true },
  });
  await client.networks.create({
    spec: { name: "iso", subnets: [{ cidr: "10.8.0.0/24" }], isolated: true },
  });
  await client.policies.apply({
    document: {
      name: "builds",
      applies_to: { labels: { role: "builder" } },
      default: "deny",
      rules: [{ name: "web", action: "allow", cidrs: [lan], protocol: "tcp", ports: [9001] }],
    },
  });
  await client.policies.apply({
    document: {
      name: "shy",
      applies_to: { labels: { role: "shy" } },
      ingress: { default: "allow", rules: [{ name: "no-one", action: "deny", cidrs: [lan] }] },
    },
  });
  for (const [name, network, role] of [
    ["builder", "default", "builder"],
    ["free", "default", ""],
    ["db", "default", "shy"],
    ["away", "far", ""],
    ["one", "iso", ""],
    ["two", "iso", ""],
  ] as const) {
    const { pod } = await client.pods.create({
      spec: {
        name,
        ...(role === "" ? {} : { labels: { role } }),
        interfaces: [{ network }],
        ...(name === "db"
          ? { ports: [{ hostIp: "*", hostPort: 8080, podPort: 80, count: 1 }] }
          : {}),
      },
    });
    at.set(name, addressOf(pod));
  }
  const greeter = "(while true; do echo hello | nc -l -p 80; done) >/dev/null 2>&1 &";
  await execIn(client, "db", "sh", "-c", greeter);
});
test.serial.after.always(async () => {
  served.dispose();
  await rig?.[Symbol.asyncDispose]();
});

/** The verdict, and the rule that denies or the last that let pass. */
async function traced(from: string, to: string, port?: number): Promise<string> {
  const request = { idOrName: from, destination: to, ...(port === undefined ? {} : { port }) };
  const { verdict, steps } = await rig.client.pods.trace(request);
  const rule = steps.findLast((step) => step.rule !== "")?.rule ?? "";
  return `${verdict} ${rule}`.trimEnd();
}

/** Whether a real packet of the guest is answered. */
async function reaches(from: string, to: string, port?: number): Promise<boolean> {
  const script =
    port === undefined ? `ping -c 1 -W 2 ${to}` : `nc -w 5 ${to} ${port} </dev/null | grep .`;
  return (await execIn(rig.client, from, "sh", "-c", script)).code === 0;
}

const cases: readonly (readonly [from: string, to: string, port: number | undefined, string])[] = [
  ["builder", lan, 9001, "allow masquerade"],
  ["builder", lan, 9002, "deny builds/default"],
  ["builder", internet, undefined, "deny builds/default"],
  ["builder", gateway, undefined, "allow ping"],
  ["free", lan, 9002, "allow masquerade"],
  ["free", internet, undefined, "allow masquerade"],
  ["free", gateway, undefined, "allow ping"],
  ["free", gateway, 9100, "deny host"],
  ["free", hostOnLan, 9100, "deny host"],
  ["free", metadata, undefined, "deny cloud-metadata"],
  ["away", metadata, undefined, "allow masquerade"],
  ["free", "db", undefined, "allow shy/default"],
  ["builder", "db", undefined, "deny builds/default"],
  ["free", "away", undefined, "deny networks"],
  ["free", "192.168.123.200", undefined, "deny no such address"],
  ["free", "2001:db8::7", undefined, "deny no route"],
  ["one", "two", undefined, "deny isolated"],
  ["one", internet, undefined, "allow masquerade"],
  ["away", hostOnLan, 8080, "allow published"],
  ["free", hostOnLan, 8080, "allow hairpin"],
  ["builder", hostOnLan, 8080, "deny builds/default"],
  ["away", hostOnLan, 8081, "deny host"],
];

test.serial("trace shows what becomes of a packet as the kernel decides, and why", async (t) => {
  for (const [from, to, port, expected] of cases) {
    const what = `${from} to ${to} ${port ?? ""}`;
    t.is(await traced(from, to, port), expected, what);
    t.is(await reaches(from, at.get(to) ?? to, port), expected.startsWith("allow"), what);
  }
});

test.serial(
  "a plan of a policy's delete says what it would open, and changes nothing",
  async (t) => {
    const planned = async (name: string): Promise<readonly string[]> => {
      const { existed, effects } = await rig.client.policies.delete({ name, planOnly: true });
      return [
        `${existed}`,
        ...effects.map((each) => `${each.pod} ${each.direction} ${each.change} ${each.rule}`),
      ];
    };
    t.deepEqual(await planned("builds"), ["true", "builder egress opens builds/default"]);
    t.deepEqual(await planned("shy"), ["true", "db ingress opens shy/no-one"]);
    t.deepEqual(await planned("missing"), ["false"]);
    t.is(await traced("builder", lan, 9002), "deny builds/default");
    t.false(await reaches("builder", lan, 9002));
    t.true(await reaches("builder", lan, 9001));
  },
);

test.serial("trace shows the steps in order", async (t) => {
  const { destination, steps } = await rig.client.pods.trace({
    idOrName: "free",
    destination: "away.far.podnet",
    port: 80,
  });
  t.is(destination, at.get("away") ?? "");
  t.deepEqual(
    steps.map(({ step, verdict }) => `${step} ${verdict}`),
    ["route pass", "guard pass", "network deny"],
  );
  t.regex(steps[0]?.text ?? "", new RegExp(`^from ${at.get("free")} by eth0 via ${gateway}$`));
});

const tables = (): Promise<string> => rig.lab.host.run("nft", "list", "tables");

/** What the kernel says of the next packet: its verdict, and what its rules stand for. */
async function tracedLive(from: string, to: string, port?: number): Promise<string[]> {
  const bounds = { packets: 1, timeoutMs: 60_000 };
  const request = { idOrName: from, destination: to, ...(port === undefined ? {} : { port }) };
  const said: string[] = [];
  let sent: Promise<boolean> | undefined;
  for await (const { event } of rig.client.pods.traceLive({ ...request, bounds })) {
    if (event.case === "started") sent = reaches(from, at.get(to) ?? to, port);
    if (event.case !== "packet") continue;
    const { verdict, rules } = event.value;
    said.push(verdict, ...rules.map(({ standsFor }) => standsFor).filter((each) => each !== ""));
  }
  await sent;
  return said;
}

test.serial("a live trace shows the rules that a guest's own packets meet", async (t) => {
  for (const [from, to, port, verdict, decides] of [
    ["builder", lan, 9001, "accept", "builds/web"],
    ["builder", lan, 9002, "drop", "builds/default"],
    ["free", gateway, undefined, "accept", "ping"],
    ["free", gateway, 9100, "drop", "host"],
    ["free", metadata, undefined, "drop", "cloud-metadata"],
    ["free", "away", undefined, "drop", "networks"],
    ["away", hostOnLan, 8080, "accept", "published"],
  ] as const) {
    const what = `${from} to ${to} ${port ?? ""}`;
    const [said, ...stood] = await tracedLive(from, to, port);
    t.is(said, verdict, what);
    t.true(stood.includes(decides), `${what}: ${stood.join(", ")}`);
    if (verdict === "drop") t.is(stood.at(-1), decides, what);
    else t.regex(stood[0] ?? "", /^guard/, what);
  }
  t.notRegex(await tables(), /podnet_trace/);
});

test.serial("what is not known is said: names elsewhere, and pods that do not run", async (t) => {
  t.is(await traced("free", "api.example.com", 443), "allow masquerade");
  t.is(await traced("builder", "api.example.com", 443), "unknown masquerade");
  await rig.client.pods.stop({ idOrName: "db" });
  t.is(await traced("free", "db"), "deny not running");
  t.false(await reaches("free", at.get("db") ?? "db"));
  const ask = (destination: string, more = {}) =>
    rig.client.pods.trace({ idOrName: "free", destination, ...more });
  await t.throwsAsync(ask("missing"), { code: "POD_NOT_FOUND" });
  t.like(await t.throwsAsync(ask("a b")), { code: "INVALID_ARGUMENT", field: "destination" });
  t.like(await t.throwsAsync(ask(lan, { port: 70_000 })), { field: "port" });
  t.like(await t.throwsAsync(ask(lan, { protocol: "gre" })), { field: "protocol" });
});

test.serial("a live trace ends with its caller, and is of packets on a bridge", async (t) => {
  const request = { idOrName: "free", destination: lan, port: 9001 };
  const gone = new AbortController();
  await t.throwsAsync(async () => {
    for await (const { event } of rig.client.pods.traceLive(request, { signal: gone.signal })) {
      t.is(event.case, "started");
      t.regex(await tables(), /podnet_trace/);
      gone.abort();
    }
  });
  await until("its table is gone", async () => !(await tables()).includes("podnet_trace"));
  const ask = async (more: object): Promise<void> => {
    for await (const _event of rig.client.pods.traceLive({ ...request, ...more }));
  };
  t.like(await t.throwsAsync(ask({ destination: "api.example.com" })), {
    code: "INVALID_ARGUMENT",
    field: "destination",
  });
  t.like(await t.throwsAsync(ask({ bounds: { packets: 17 } })), { field: "bounds.packets" });
  t.like(await t.throwsAsync(ask({ bounds: { timeoutMs: 1 } })), { field: "bounds.timeout_ms" });
  await t.throwsAsync(ask({ idOrName: "db" }), { code: "WRONG_STATE" });
});
