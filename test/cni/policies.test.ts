import type { JsonObject } from "@bufbuild/protobuf";
import test from "ava";
import type { Machine } from "../lab/lab.ts";
import { until } from "../lab/until.ts";
import { type CniRig, openCniRig } from "./cni-rig.ts";

let cni: CniRig;
test.serial.before(async () => {
  cni = await openCniRig();
  await cni.rig.client.networks.create({
    spec: { name: "blue", subnets: [{ cidr: "10.88.0.0/24" }, { cidr: "fd00:88::/64" }] },
  });
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});
test.serial.afterEach.always(async () => {
  await cni.converged();
});

const internet = "203.0.113.10";
const apply = (document: JsonObject) => cni.rig.client.policies.apply({ document });
const rules = (): Promise<string> => cni.rig.lab.host.run("nft", "list", "ruleset");
const bare = (prefix: string): string => prefix.slice(0, prefix.indexOf("/"));

interface Attached {
  readonly container: Machine;
  /** Of each family that its network has. */
  readonly addresses: readonly string[];
  readonly asked: { readonly args?: string; readonly config: Readonly<Record<string, unknown>> };
  readonly result: unknown;
}

async function attach(config: Readonly<Record<string, unknown>>, args?: string): Promise<Attached> {
  const container = await cni.container();
  const asked = { config, ...(args === undefined ? {} : { args }) };
  const result = await cni.done({ container, ...asked });
  const addresses = result.ips.map(({ address }: { address: string }) => bare(address));
  return { container, addresses, asked, result };
}
const labelled = (labels: Readonly<Record<string, string>>) => ({
  args: {
    cni: { labels: Object.entries(labels).map(([key, value]) => ({ key, value })) },
  },
});
const annotated = (text: string) => ({
  runtimeConfig: { "io.kubernetes.cri.pod-annotations": { "podnet/labels": text } },
});
const detach = async (...all: readonly Attached[]): Promise<void> => {
  for (const { container } of all) await cni.done({ command: "DEL", container });
};
/** Which of some addresses answer to it. */
async function reached({ container }: Attached, to: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const address of to) if (await container.reaches(address)) found.push(address);
  return found;
}

const closed = { name: "closed", applies_to: { labels: { role: "builder" } }, default: "deny" };

test.serial(
  "a container has its policy when ADD is answered, by labels of args or of an annotation",
  async (t) => {
    await apply(closed);
    const [arg, noted, free] = [
      await attach(labelled({ role: "builder" })),
      await attach(annotated("app=x, role=builder")),
      await attach({}),
    ];
    const others = [internet, ...free.addresses];
    for (const one of [arg, noted]) t.deepEqual(await reached(one, others), []);
    t.deepEqual(await reached(free, [internet, ...arg.addresses]), [internet, ...arg.addresses]);
    const { policy } = await cni.rig.client.policies.get({ name: "closed" });
    const names = [arg, noted].map(({ container }) => container.name).toSorted();
    t.deepEqual(policy?.containers, names);
    const asked = { name: "closed", planOnly: true };
    const { effects } = await cni.rig.client.policies.delete(asked);
    t.deepEqual(
      effects.map((each) => `${each.container} ${each.direction} ${each.change} ${each.rule}`),
      names.map((name) => `${name} egress opens closed/default`),
    );
    // A podnetd that was killed and started again leaves policies as they are.
    await cni.rig.restart("kill");
    t.deepEqual(await reached(arg, others), []);
    t.deepEqual(await reached(free, others.slice(0, 1)), [internet]);
    await detach(arg, noted);
    t.notRegex(await rules(), /policy_/, "nothing of it is left");
    await cni.rig.client.policies.delete({ name: "closed" });
    await detach(free);
  },
);

test.serial(
  "what others take from a container's policy is put back, and CHECK finds no difference",
  async (t) => {
    await apply(closed);
    const one = await attach(labelled({ role: "builder" }));
    const { container, asked, result } = one;
    const check = () =>
      cni.ask({
        command: "CHECK",
        container,
        ...asked,
        config: { ...asked.config, prevResult: result },
      });
    t.is((await check()).exit, 0);
    await cni.rig.lab.host.run("nft", "flush map inet podnet_policy egress4");
    await until("the policy", async () => !(await container.reaches(internet)));
    await until("no difference", async () => (await check()).exit === 0);
    await detach(one);
    await cni.rig.client.policies.delete({ name: "closed" });
  },
);

test.serial("what a container is denied is counted and shown for it alone", async (t) => {
  await apply(closed);
  const [one, other] = [
    await attach(labelled({ role: "builder" })),
    await attach(labelled({ role: "builder" })),
  ];
  t.deepEqual(await reached(one, [internet]), []);
  const { client } = cni.rig;
  const counted = async ({ container: { name } }: Attached): Promise<string[]> =>
    (await client.cni.guard({ container: name })).denials.map(
      ({ direction, policy, rule, unit, count }) =>
        `${direction} ${policy}/${rule} ${unit} ${count > 0n}`,
    );
  t.deepEqual(await counted(one), ["egress closed/default packets true"]);
  t.deepEqual(await counted(other), []);
  const shown = async ({ container: { name } }: Attached): Promise<string[]> => {
    const found: string[] = [];
    for await (const { verdict } of client.policies.tail({ container: name, lastOnly: true }))
      found.push(`${verdict?.container} ${verdict?.protocol} ${verdict?.address}`);
    return [...new Set(found)];
  };
  await until("a verdict", async () => (await shown(one)).length > 0);
  const [verdict = "", ...others] = await shown(one);
  t.true(verdict.startsWith(`container ${one.container.name},`), verdict);
  t.true(verdict.endsWith(` icmp ${internet}`), verdict);
  t.deepEqual(others, []);
  t.deepEqual(await shown(other), []);
  await detach(one, other);
  await client.policies.delete({ name: "closed" });
});

test.serial(
  "a policy of a network is that of all its pods and containers, in both families",
  async (t) => {
    await apply({
      name: "blue",
      applies_to: { networks: ["blue"] },
      rules: [{ name: "named", action: "allow", pods: { namespace: "prod" } }],
    });
    const prod = "K8S_POD_NAMESPACE=prod;K8S_POD_NAME=db";
    const one = await attach({ network: "blue" });
    const db = await attach({ network: "blue" }, prod);
    const other = await attach({ network: "blue" });
    const outside = await attach({});
    t.is(db.addresses.length, 2);
    // Rules follow containers: those of the first are written again when the second one has come.
    await until("a rule that follows", () => one.container.reaches(db.addresses[0] ?? ""));
    const all = [...db.addresses, ...other.addresses, internet];
    t.deepEqual(await reached(one, all), db.addresses);
    t.deepEqual(await reached(outside, [internet]), [internet]);
    const explain = async (container: string, address: string): Promise<string> => {
      const { verdict, rule } = await cni.rig.client.policies.explain({ container, address });
      return `${verdict} ${rule}`;
    };
    t.is(await explain("prod/db", internet), "deny default");
    t.is(await explain(one.container.name, db.addresses[1] ?? ""), "allow named");
    t.is(await explain(outside.container.name, internet), "allow default");
    await t.throwsAsync(explain("prod/none", internet), { code: "INTERFACE_NOT_FOUND" });
    await apply({ name: "blue", applies_to: { pods: ["db"] }, default: "deny" });
    t.deepEqual(await reached(one, [internet]), [internet]);
    t.deepEqual(await reached(db, [internet]), []);
    await detach(one, db, other, outside);
    await cni.rig.client.policies.delete({ name: "blue" });
  },
);

test.serial("a NetworkPolicy holds for containers of its namespace", async (t) => {
  await apply({
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: "none", namespace: "prod" },
    spec: { podSelector: { matchLabels: { app: "db" } }, policyTypes: ["Ingress"] },
  });
  const [prod, test] = ["prod", "test"].map(
    (namespace) => `K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=db`,
  );
  const one = await attach(annotated("app=db"), prod);
  const other = await attach(annotated("app=db"), test);
  const asking = await attach({}, prod);
  t.deepEqual(await reached(asking, one.addresses), []);
  t.deepEqual(await reached(asking, other.addresses), other.addresses);
  await detach(one, other, asking);
  await cni.rig.client.policies.delete({ name: "prod/none" });
});

test.serial("names decide about containers, too", async (t) => {
  await apply({
    ...closed,
    rules: [{ name: "index", action: "allow", domains: ["index.example"], ports: [443] }],
  });
  const one = await attach(labelled({ role: "builder" }));
  const free = await attach({});
  const script = `
    const resolver = new (require("node:dns").promises.Resolver)({ timeout: 2000, tries: 1 });
    resolver.setServers(["192.168.123.1"]);
    resolver.resolve4("other.example").then(() => "", ({ code }) => code).then(console.log);
  `;
  const asked = async ({ container }: Attached): Promise<string> =>
    (await container.run(process.execPath, "-e", script)).trim();
  t.is(await asked(one), "EREFUSED");
  t.not(await asked(free), "EREFUSED");
  const explain = async (address: string): Promise<string> => {
    const container = one.container.name;
    const { verdict, rule } = await cni.rig.client.policies.explain({ container, address });
    return `${verdict} ${rule}`;
  };
  t.is(await explain("index.example"), "allow index");
  t.is(await explain("other.example"), "deny default");
  await detach(one, free);
  await cni.rig.client.policies.delete({ name: "closed" });
});

test.serial("labels that cannot be read fail the ADD", async (t) => {
  for (const config of [
    annotated("role"),
    annotated("=builder"),
    labelled({ "": "x" }),
    { args: { cni: { labels: "role=builder" } } },
  ]) {
    const { exit, json } = await cni.ask({ container: await cni.container(), config });
    t.is(exit, 1);
    t.regex(json.msg, /label/i);
  }
});
