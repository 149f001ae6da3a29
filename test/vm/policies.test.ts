import { once } from "node:events";
import { createInterface } from "node:readline";
import type { JsonObject } from "@bufbuild/protobuf";
import test from "ava";
import { labAddresses } from "../lab/lab.ts";
import { until } from "../lab/until.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
const served = new DisposableStack();
const { lan, internet } = labAddresses;

const server = `
const { createServer } = require("node:net");
let open = 0;
for (const port of [9001, 9002])
  createServer((socket) => socket.on("error", () => {}).end(String(port)))
    .listen(port, () => ++open === 2 && console.log("up"));
`;

test.serial.before(async () => {
  rig = await openRig("quarantine_s = 0\n");
  const child = rig.lab.lan.spawn([process.execPath, "-e", server], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  if (child.stdout === null) throw new Error("No output");
  served.defer(() => child.kill("SIGKILL"));
  await once(createInterface({ input: child.stdout }), "line");
  await rig.lab.lan.run("ip", "route", "replace", "default", "via", labAddresses.hostOnLan);
});
test.serial.after.always(async () => {
  served.dispose();
  await rig?.[Symbol.asyncDispose]();
});

const builds = (more: JsonObject = {}): JsonObject => ({
  name: "builds",
  applies_to: { labels: { role: "builder" } },
  default: "deny",
  rules: [{ name: "web", action: "allow", cidrs: [lan], protocol: "tcp", ports: [9001] }],
  ...more,
});
const apply = (document: JsonObject) => rig.client.policies.apply({ document });

async function podOf(name: string, labels: Record<string, string>): Promise<string> {
  const { pod } = await rig.client.pods.create({ spec: { name, labels } });
  return pod?.interfaces[0]?.addresses[0]?.replace(/\/.*/, "") ?? "";
}

/** What a guest gets of a server of the LAN: the port, or how it was refused. */
async function gets(from: string, port: number): Promise<string> {
  const script = `nc -w 5 ${lan} ${port} </dev/null 2>&1`;
  const { output } = await execIn(rig.client, from, "sh", "-c", script);
  return /^\d+$|refused|timed out/.exec(output)?.[0] ?? output;
}

const pings = async (from: string, to: string): Promise<boolean> =>
  (await execIn(rig.client, from, "ping", "-c", "1", "-W", "2", to)).code === 0;

test.serial("a policy is in force from a guest's first packet, and refuses at once", async (t) => {
  await apply(builds());
  await podOf("builder", { role: "builder" });
  await podOf("free", {});
  t.is(await gets("builder", 9001), "9001");
  t.is(await gets("builder", 9002), "refused");
  t.false(await pings("builder", internet));
  t.is(await gets("free", 9002), "9002", "a pod that it does not choose");
  t.true(await pings("free", internet));
  const { policies } = await rig.client.policies.list({});
  t.deepEqual(
    policies.map(({ name, pods }) => [name, pods]),
    [["builds", ["builder"]]],
  );
});

test.serial("explain says what the kernel does, and by which rule", async (t) => {
  const explain = async (pod: string, port: number): Promise<string> => {
    const { verdict, rule } = await rig.client.policies.explain({ pod, address: lan, port });
    return `${verdict} ${rule}`;
  };
  t.is(await explain("builder", 9001), "allow web");
  t.is(await explain("builder", 9002), "deny default");
  t.is(await explain("free", 9002), "allow default");
});

test.serial("what was closed stays closed while podnetd is killed and starts again", async (t) => {
  await rig.restart("kill");
  t.is(await gets("builder", 9002), "refused");
  t.is(await gets("builder", 9001), "9001");
});

test.serial(
  "a changed policy holds when its call answers, and a wrong one changes nothing",
  async (t) => {
    await apply(
      builds({ rules: [{ name: "other", action: "allow", cidrs: [lan], ports: [9002] }] }),
    );
    t.is(await gets("builder", 9001), "refused");
    t.is(await gets("builder", 9002), "9002");
    const ssh = { name: "x", action: "allow", domains: ["a.example"], ports: [22] };
    const wrong = builds({ rules: [ssh] });
    const refused = await t.throwsAsync(apply(wrong));
    t.like(refused, { code: "UNSUPPORTED", field: "rules[0].ports" });
    t.is(await gets("builder", 9002), "9002");
  },
);

test.serial("rules that choose pods by label follow them", async (t) => {
  await apply(
    builds({ rules: [{ name: "db", action: "allow", pods: { labels: { app: "db" } } }] }),
  );
  const address = await podOf("db", { app: "db" });
  await until("a rule that follows", () => pings("builder", address));
  const other = await podOf("other", { app: "web" });
  t.false(await pings("builder", other));
  t.true(await pings("free", other));
});

const opens = (port: number): JsonObject => ({
  rules: [{ name: "web", action: "allow", cidrs: [lan], protocol: "tcp", ports: [port] }],
});

test.serial(
  "a pod's own rules hold from its first packet, change live, and outlive podnetd",
  async (t) => {
    await rig.client.pods.create({ spec: { name: "own", policy: opens(9001) } });
    t.is(await gets("own", 9001), "9001");
    t.is(await gets("own", 9002), "refused");
    t.is(await gets("free", 9002), "9002", "a pod without rules");
    const explain = () => rig.client.policies.explain({ pod: "own", address: lan, port: 9002 });
    t.like(await explain(), { verdict: "deny", policy: "pod:own", rule: "default" });
    const own = async (name: string) =>
      (await rig.client.policies.list({})).policies.find((each) => each.name === name);
    t.like(await own("pod:own"), { document: { name: "pod:own", ...opens(9001) }, pods: ["own"] });
    t.true((await rig.client.pods.verify({ idOrName: "own" })).ok);
    await apply({ name: "pod:own", ...opens(9002) });
    t.is(await gets("own", 9001), "refused");
    t.is(await gets("own", 9002), "9002");
    t.deepEqual((await rig.client.pods.get({ idOrName: "own" })).pod?.spec?.policy, opens(9002));
    await rig.restart("kill");
    t.is(await gets("own", 9001), "refused");
    t.is(await gets("own", 9002), "9002");
    await rig.lab.host.run("nft", "flush", "table", "inet", "podnet_policy");
    await until("a repair", async () => (await gets("own", 9001)) === "refused");
    t.is(await gets("own", 9002), "9002");
    t.true((await rig.client.policies.delete({ name: "pod:own" })).existed);
    t.is(await gets("own", 9001), "9001");
    t.is(await own("pod:own"), undefined);
    await t.throwsAsync(apply({ name: "pod:none", ...opens(9001) }), { code: "POD_NOT_FOUND" });
  },
);

test.serial(
  "a network's rules hold for all on it, after a pod's own; they go with it",
  async (t) => {
    const spec = { name: "ruled", subnets: [{ cidr: "10.61.0.0/24" }], policy: opens(9001) };
    await rig.client.networks.create({ spec });
    const interfaces = [{ network: "ruled" }];
    await rig.client.pods.create({ spec: { name: "shared", interfaces } });
    t.is(await gets("shared", 9001), "9001");
    t.is(await gets("shared", 9002), "refused");
    await apply({ name: "pod:shared", default: "allow", ...opens(9002) });
    t.is(await gets("shared", 9002), "9002", "its own rule comes first");
    const before = await rig.client.networks.update({
      spec: { ...spec, policy: opens(80) },
      planOnly: true,
    });
    t.true(
      before.plan.includes(`+ network:ruled egress web: allow ${lan} tcp 80`),
      before.plan.join(", "),
    );
    await rig.client.networks.update({ spec: { ...spec, policy: opens(80) } });
    t.is(await gets("shared", 9001), "refused", "in force when the call answers");
    t.is(await gets("shared", 9002), "9002");
    const refused = await t.throwsAsync(apply({ name: "network:ruled", ...opens(1) }));
    t.like(refused, { code: "UNSUPPORTED", field: "name" });
    t.regex(await rig.daemon.podnet("policy", "list"), /^network:ruled +shared /m);
    await rig.client.pods.delete({ idOrName: "shared" });
    await rig.client.networks.delete({ name: "ruled" });
    t.notRegex(await rig.daemon.podnet("policy", "list"), /ruled|shared/);
  },
);

test.serial("without its policy a pod is free, and nothing of policies is left", async (t) => {
  t.true((await rig.client.policies.delete({ name: "builds" })).existed);
  t.false((await rig.client.policies.delete({ name: "builds" })).existed);
  t.is(await gets("builder", 9001), "9001");
  t.true(await pings("builder", internet));
  t.notRegex(await rig.lab.host.run("nft", "list", "ruleset"), /policy_/);
  await t.throwsAsync(rig.client.policies.get({ name: "builds" }), { code: "POLICY_NOT_FOUND" });
});
