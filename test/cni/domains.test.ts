/** Rules with domains for containers: a real resolver, relay, name server and TLS servers. */
import type { ChildProcess } from "node:child_process";
import path from "node:path";
import test from "ava";
import { labAddresses, type Machine } from "../lab/lab.ts";
import { ended, site, siteAddresses } from "../lab/relay-site.ts";
import { until } from "../lab/until.ts";
import { type CniRig, openCniRig } from "./cni-rig.ts";

const { internet }: { readonly internet: string } = labAddresses;
const { six } = siteAddresses;
const [api, other] = ["api.example.com", "other.example.com"];
const gateways = { 4: "10.88.0.1", 6: "fd00:88::1" } as const;
const addresses = { 4: internet, 6: six } as const;
const families = [4, 6] as const;
const served = new AsyncDisposableStack();
let cni: CniRig;

test.serial.before(async () => {
  cni = await openCniRig(`quarantine_s = 0\ndrift_s = 1\n[dns]\nupstreams = ["${internet}"]\n`);
  const { lab, directory, client } = cni.rig;
  const { host, internet: machine } = lab;
  await machine.run("ip", "addr", "add", `${six}/128`, "dev", "lo", "nodad");
  await machine.run("ip", "addr", "add", "2001:db8:2::1/64", "dev", "eth0", "nodad");
  await host.run("ip", "addr", "add", "2001:db8:2::2/64", "dev", "wan0", "nodad");
  await host.run("ip", "-6", "route", "add", "default", "via", "2001:db8:2::1");
  for (const address of [internet, six])
    served.adopt(await site(machine, directory, address), ended);
  const program = path.join(import.meta.dirname, "../lab/name-server.ts");
  const names = [api, other].flatMap((name) => [`${name}=${internet}`, `${name}=${six}`]);
  served.adopt<ChildProcess>(machine.spawn([process.execPath, program, internet, ...names]), ended);
  await until("a name server", async () =>
    (await machine.run("ss", "-Hltn", "sport = :53")).includes(":53"),
  );
  await client.networks.create({
    spec: { name: "blue", subnets: [{ cidr: "10.88.0.0/24" }, { cidr: "fd00:88::/64" }] },
  });
  await client.policies.apply({
    document: {
      name: "sandbox",
      applies_to: { labels: { role: "sandbox" } },
      default: "deny",
      rules: [{ name: "api", action: "allow", domains: [api] }],
    },
  });
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
  await served.disposeAsync();
});

async function attach(role: string): Promise<Machine> {
  const container = await cni.container();
  const args = { cni: { labels: [{ key: "role", value: role }] } };
  await cni.done({ container, config: { network: "blue", args } });
  return container;
}

const asker = `
const { Resolver } = require("node:dns").promises;
const [server, name, type] = process.argv.slice(1);
const resolver = new Resolver({ timeout: 20000, tries: 1 });
resolver.setServers([server.includes(":") ? "[" + server + "]" : server]);
resolver.resolve(name, type).then((found) => console.log(found.join(" ")), (error) => console.log(error.code));
`;

/** What a network's resolver answers. */
const lookUp = async (from: Machine, name: string, family: 4 | 6): Promise<string> =>
  (
    await from.run(
      process.execPath,
      "-e",
      asker,
      gateways[family],
      name,
      family === 4 ? "A" : "AAAA",
    )
  ).trim();

/** The answer of a server over HTTPS, or how curl ends. */
async function https(from: Machine, name: string, family: 4 | 6): Promise<string> {
  const at = family === 4 ? internet : `[${six}]`;
  const words = ["-sSk", "--max-time", "30", "--resolve", `${name}:443:${at}`] as const;
  try {
    return await from.run("curl", ...words, `https://${name}/`);
  } catch (error) {
    return `exit ${(error as { code?: number }).code}`;
  }
}

test.serial("a container reaches the names that its policy allows, and no others", async (t) => {
  const [sandbox, free] = [await attach("sandbox"), await attach("free")];
  for (const family of families)
    t.regex(await https(sandbox, api, family), /^exit /, "a name that was not resolved");
  for (const family of families) {
    const place = addresses[family];
    const what = `IPv${family}`;
    t.is(await lookUp(sandbox, api, family), place, what);
    t.is(await lookUp(sandbox, other, family), "EREFUSED", what);
    t.is(await lookUp(free, other, family), place, what);
    // All of TLS, through the relay.
    t.regex(await https(sandbox, api, family), /host=api\.example\.com/, what);
    t.regex(await https(sandbox, other, family), /^exit /, what);
    t.regex(await https(free, other, family), /host=other\.example\.com/, what);
  }
  const { client } = cni.rig;
  const denied = async (container: Machine): Promise<readonly string[]> =>
    (await client.cni.guard({ container: container.name })).denials.map(
      ({ policy, rule }) => `${policy}/${rule}`,
    );
  t.true((await denied(sandbox)).includes("sandbox/default"));
  t.deepEqual(await denied(free), []);
  for (const container of [sandbox, free]) await cni.done({ command: "DEL", container });
});

const tables = (): Promise<string> => cni.rig.lab.host.run("nft", "list", "tables");

test.serial("a policy learned from a container allows what it used, and no more", async (t) => {
  const { client } = cni.rig;
  const container = await attach("free");
  const caller = new AbortController();
  const policies = client.policies.learn({ container: container.name }, { signal: caller.signal });
  const answers = policies[Symbol.asyncIterator]();
  let learned = (await answers.next()).value?.document;
  t.like(learned, { applies_to: { pods: [container.name] }, default: "deny", rules: [] });
  t.regex(await tables(), /podnet_learn/);
  t.is(await lookUp(container, api, 4), internet);
  t.regex(await https(container, api, 4), /host=api\.example\.com/);
  await container.run("ping", "-c", "1", "-W", "5", internet);
  const rules = (): string => JSON.stringify(learned?.["rules"] ?? []);
  while (!rules().includes(api) || !rules().includes("icmp"))
    learned = (await answers.next()).value?.document;
  t.notRegex(rules(), /other/);
  caller.abort();
  await t.throwsAsync(answers.next());
  await until("the end of its table", async () => !(await tables()).includes("learn"));
  const { policy } = await client.policies.apply({ document: learned ?? {} });
  t.deepEqual(policy?.containers, [container.name]);
  t.is(await lookUp(container, api, 4), internet);
  t.regex(await https(container, api, 4), /host=api\.example\.com/);
  await container.run("ping", "-c", "1", "-W", "5", internet);
  t.is(await lookUp(container, other, 4), "EREFUSED");
  await client.policies.delete({ name: policy?.name ?? "" });
  await cni.done({ command: "DEL", container });
});

test.serial("learning from a container ends with podnetd, and leaves nothing", async (t) => {
  const container = await attach("free");
  const { client } = cni.rig;
  const answers = client.policies.learn({ container: container.name })[Symbol.asyncIterator]();
  await answers.next();
  t.regex(await tables(), /podnet_learn/);
  await Promise.all([
    cni.rig.restart("kill"),
    t.throwsAsync(async () => {
      while ((await answers.next()).done !== true);
    }),
  ]);
  t.notRegex(await tables(), /podnet_learn/);
  t.is(await lookUp(container, api, 4), internet);
  await cni.done({ command: "DEL", container });
});

test.serial(
  "with its policy a container's names open, as the plan of the delete says",
  async (t) => {
    const { client } = cni.rig;
    const sandbox = await attach("sandbox");
    t.is(await lookUp(sandbox, other, 4), "EREFUSED");
    const { effects } = await client.policies.delete({ name: "sandbox", planOnly: true });
    t.deepEqual(
      effects.map(({ container, change, rule }) => `${container} ${change} ${rule}`),
      ["podnet/resolver", "podnet/encrypted-dns", "sandbox/default"].map(
        (rule) => `${sandbox.name} opens ${rule}`,
      ),
    );
    await client.policies.delete({ name: "sandbox" });
    t.is(await lookUp(sandbox, other, 4), internet);
    t.regex(await https(sandbox, other, 4), /host=other\.example\.com/);
    await cni.done({ command: "DEL", container: sandbox });
  },
);
