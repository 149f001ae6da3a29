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

test.serial("without its policy a pod is free, and nothing of policies is left", async (t) => {
  t.true((await rig.client.policies.delete({ name: "builds" })).existed);
  t.false((await rig.client.policies.delete({ name: "builds" })).existed);
  t.is(await gets("builder", 9001), "9001");
  t.true(await pings("builder", internet));
  t.notRegex(await rig.lab.host.run("nft", "list", "ruleset"), /policy_/);
  await t.throwsAsync(rig.client.policies.get({ name: "builds" }), { code: "POLICY_NOT_FOUND" });
});
