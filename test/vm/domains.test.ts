import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { connect } from "node:tls";
import type { JsonObject } from "@bufbuild/protobuf";
import test, { type ExecutionContext } from "ava";
import { WatchPodsResponse_Kind } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { labAddresses } from "../lab/lab.ts";
import { ended, site } from "../lab/relay-site.ts";
import { until } from "../lab/until.ts";
import { execIn, openRig, type Rig } from "./daemon-rig.ts";

const { internet }: { readonly internet: string } = labAddresses;
/** Another address of the internet, which no name has. */
const unnamed = "203.0.113.11";
const api = "api.example.com";
const other = "other.example.com";
const served = new AsyncDisposableStack();
let rig: Rig;

test.serial.before(async () => {
  rig = await openRig(`quarantine_s = 0\n[dns]\nupstreams = ["${internet}"]\n`);
  const { internet: machine } = rig.lab;
  await machine.run("ip", "addr", "add", `${unnamed}/32`, "dev", "lo");
  for (const address of [internet, unnamed])
    served.adopt(await site(machine, rig.directory, address), ended);
  const program = path.join(import.meta.dirname, "../lab/name-server.ts");
  const outside = [api, other, "dns.google", "about.google"].map((name) => `${name}=${internet}`);
  const names = [...outside, "in.cdn.example.com=10.9.9.9"];
  const server = machine.spawn([process.execPath, program, internet, ...names]);
  served.adopt<ChildProcess>(server, ended);
  await until("a name server", async () =>
    (await machine.run("ss", "-Hltn", "sport = :53")).includes(":53"),
  );
  for (const [name, role] of [
    ["sandbox", "sandbox"],
    ["free", "free"],
  ] as const)
    await rig.client.pods.create({ spec: { name, labels: { role } } });
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
  await served.disposeAsync();
});

const sandbox = (rules: readonly JsonObject[]): JsonObject => ({
  name: "sandbox",
  applies_to: { labels: { role: "sandbox" } },
  default: "deny",
  rules: [...rules],
});
const allowed = sandbox([
  { name: "api", reason: "What it is for", action: "allow", domains: [api, "*.cdn.example.com"] },
]);
const apply = (document: JsonObject) => rig.client.policies.apply({ document });

const sh = async (pod: string, script: string): Promise<string> =>
  (await execIn(rig.client, pod, "sh", "-c", script)).output;

/** How a client of TLS begins that asks for a name. */
async function helloFor(name: string): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { readonly port: number };
  const client = connect({ port, host: "127.0.0.1", servername: name });
  client.on("error", () => {});
  const [socket] = await once(server, "connection");
  const [bytes] = (await once(socket, "data")) as [Buffer];
  client.destroy();
  server.close();
  return bytes.toString("base64");
}

/** What TLS says first: `16` is a server's hello, `15` an alert; empty for a refused connection. */
async function tls(pod: string, name: string, address = internet): Promise<string> {
  const hello = await helloFor(name);
  const first = "head -c 1 | od -An -tx1";
  return (
    await sh(pod, `echo ${hello} | base64 -d | nc -w 10 ${address} 443 2>/dev/null | ${first}`)
  ).trim();
}

/** The answer to a request of plain HTTP. */
const http = (pod: string, host: string, address = internet): Promise<string> =>
  sh(pod, `printf 'GET / HTTP/1.1\\r\\nHost: ${host}\\r\\n\\r\\n' | nc -w 10 ${address} 80 2>&1`);

const lookUp = (pod: string, name: string, server = ""): Promise<string> =>
  sh(pod, `nslookup ${name} ${server} 2>&1`);

/** Relays on this lab's host. */
const relays = (): number[] =>
  readdirSync("/proc")
    .map(Number)
    .filter(Number.isInteger)
    .filter((pid) => {
      try {
        const isHere = readlinkSync(`/proc/${pid}/ns/net`).includes(
          `[${statSync(rig.lab.host.path).ino}]`,
        );
        return isHere && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("podnet-relay.mjs");
      } catch {
        return false;
      }
    });

/** What the sandbox reaches, and what not, each next to a pod that has no policy. */
async function enforced(t: ExecutionContext): Promise<void> {
  t.regex(await lookUp("sandbox", api), new RegExp(internet.replaceAll(".", "\\.")));
  t.is(await tls("sandbox", api), "16");
  t.regex(await http("sandbox", api), /^HTTP\/1\.1 200[^]*host=api\.example\.com/);
  // The other name on this address.
  t.is(await tls("sandbox", other), "15");
  t.is(await tls("free", other), "16");
  t.regex(
    await http("sandbox", other),
    /403 Forbidden[^]*denies other\.example\.com: policy sandbox, rule default: no rule allows it/,
  );
  t.regex(await lookUp("sandbox", other), /REFUSED/i);
  t.regex(await lookUp("free", other), new RegExp(internet.replaceAll(".", "\\.")));
}

test.serial("without a policy a pod reaches every name, and there is no relay", async (t) => {
  t.is(await tls("sandbox", other), "16");
  t.is(await tls("sandbox", api, unnamed), "16");
  t.deepEqual(relays(), []);
});

test.serial("a pattern opens no known server of DNS over HTTPS", async (t) => {
  const pattern = { name: "pattern", action: "allow", domains: ["*.google"] };
  await apply(sandbox([pattern]));
  const resolved = new RegExp(internet.replaceAll(".", "\\."));
  t.regex(await lookUp("sandbox", "about.google"), resolved);
  t.regex(await lookUp("sandbox", "dns.google"), /REFUSED/i);
  t.is(await tls("sandbox", "dns.google"), "15", "nor is it reached by its address");
  t.regex(await lookUp("free", "dns.google"), resolved);
  t.is(await tls("free", "dns.google"), "16");
  await apply(sandbox([{ ...pattern, domains: ["dns.google"] }]));
  t.regex(await lookUp("sandbox", "dns.google"), resolved);
  t.is(await tls("sandbox", "dns.google"), "16", "a rule with the very name does");
});

test.serial("a pod reaches the names that its policy allows, and no others", async (t) => {
  await apply(allowed);
  t.is(await tls("sandbox", api), "15", "a name that was not resolved");
  await enforced(t);
  t.is(relays().length, 1);
});

test.serial("addresses that no answer had, and other ways to names, are closed", async (t) => {
  t.regex(await http("sandbox", unnamed, unnamed), /403 Forbidden/);
  t.regex(await http("free", unnamed, unnamed), /200 OK/);
  // An allowed name leads to its own address, whatever the pod connects to.
  t.regex(await http("sandbox", api, unnamed), new RegExp(`at=${internet} `));
  t.notRegex(await lookUp("sandbox", api, internet), new RegExp(`${api}[^]*${internet}`));
  t.regex(await lookUp("free", api, internet), new RegExp(`${api}[^]*${internet}`));
  t.regex(await lookUp("sandbox", "in.cdn.example.com"), /REFUSED/i, "a name that leads inside");
  t.regex(await lookUp("free", "in.cdn.example.com"), /10\.9\.9\.9/);
  t.regex(await sh("sandbox", `nc -w 5 ${internet} 853 </dev/null 2>&1`), /refused/);
});

test.serial("what is denied is shown live, counted by rule, and reported once", async (t) => {
  const { policies, pods } = rig.client;
  const over = new AbortController();
  const seen: string[] = [];
  const following = (async () => {
    for await (const { verdict } of policies.tail({ pod: "sandbox" }, { signal: over.signal }))
      if (verdict !== undefined)
        seen.push(
          [verdict.unit, verdict.protocol, verdict.address, verdict.port || "", verdict.name]
            .filter((part) => part !== "")
            .join(" ") + `: ${verdict.policy}/${verdict.rule}: ${verdict.reason}`,
        );
  })().catch(() => {});
  await http("sandbox", other);
  await lookUp("sandbox", other);
  t.regex(await sh("sandbox", `nc -w 5 ${internet} 22 </dev/null 2>&1`), /refused/);
  t.notRegex(await sh("free", `nc -w 5 ${internet} 22 </dev/null 2>&1`), /prohibited/);
  const why = "sandbox/default: no rule allows it";
  const wanted = [
    `connections tcp ${internet} 80 ${other}: ${why}`,
    `questions ${other}: ${why}`,
    `packets tcp ${internet} 22: ${why}`,
  ];
  await until("all three", () => wanted.every((line) => seen.includes(line)));
  over.abort();
  await following;
  const { denials } = await pods.guard({ idOrName: "sandbox" });
  const units = denials.filter(({ rule }) => rule === "default").map(({ unit }) => unit);
  t.deepEqual(units.toSorted(), ["connections", "packets", "questions"]);
  t.deepEqual((await pods.guard({ idOrName: "free" })).denials, [], "no policy");
  const last: string[] = [];
  for await (const { verdict } of policies.tail({ lastOnly: true })) last.push(verdict?.pod ?? "");
  t.deepEqual([...new Set(last)], ["sandbox"]);
  await until("an event", async () => {
    const watched = pods.watch({ idOrName: "sandbox", after: 0n }, { timeoutMs: 1000 });
    try {
      for await (const { kind, text } of watched)
        if (kind === WatchPodsResponse_Kind.DENIAL) return /denied \(egress\) by /.test(text);
    } catch {
      // Nothing more for now.
    }
    return false;
  });
});

test.serial("explain says what becomes of names", async (t) => {
  const explain = async (address: string, port?: number): Promise<string> => {
    const asked = { pod: "sandbox", address, ...(port === undefined ? {} : { port }) };
    const { verdict, rule } = await rig.client.policies.explain(asked);
    return `${verdict} ${rule}`;
  };
  t.is(await explain(api), "allow api");
  t.is(await explain(other, 80), "deny default");
  t.is(await explain(internet, 443), "relay api");
  t.is(await explain(internet, 22), "deny default");
  t.is(await explain(internet, 53), "deny resolver");
  await t.throwsAsync(explain(api, 22), { code: "INVALID_ARGUMENT" });
});

test.serial(
  "trace leads to the relay where a name is allowed, and says when it is needed",
  async (t) => {
    const trace = async (destination: string, port: number): Promise<string> => {
      const { verdict, steps } = await rig.client.pods.trace({
        idOrName: "sandbox",
        destination,
        port,
      });
      return `${verdict} ${steps.at(-1)?.step}`;
    };
    t.is(await trace(api, 443), "allow relay");
    t.is(await trace(other, 443), "deny policy");
    t.is(await trace(internet, 443), "unknown relay");
    t.is(await trace(internet, 22), "deny policy");
  },
);

test.serial("a policy that was learned allows what the pod used, and nothing else", async (t) => {
  const over = new AbortController();
  let learned: JsonObject | undefined;
  const rules = (): string => JSON.stringify(learned?.["rules"] ?? "");
  const learning = (async () => {
    for await (const { document } of rig.client.policies.learn(
      { pod: "free" },
      { signal: over.signal },
    ))
      learned = document;
  })().catch(() => {});
  await until("a beginning", () => learned !== undefined);
  await lookUp("free", api);
  t.is(await tls("free", api), "16");
  await sh("free", `ping -c 1 -W 5 ${internet}`);
  await until("all of it", () => /"icmp".*"names"/.test(rules()));
  over.abort();
  await learning;
  await until(
    "an end",
    async () => !(await rig.lab.host.run("nft", "list", "tables")).includes("learn"),
  );
  t.false(rules().includes("tcp-443"), rules());
  t.regex(rules(), /"domains":\["api\.example\.com"\]/);
  await apply({ ...learned });
  t.regex(await lookUp("free", api), new RegExp(internet.replaceAll(".", "\\.")));
  t.is(await tls("free", api), "16");
  t.is(await tls("free", other), "15", "a name that it did not use");
  t.regex(await sh("free", `ping -c 1 -W 5 ${internet}`), /1 packets received|1 received/);
  t.notRegex(await sh("free", `ping -c 1 -W 2 ${unnamed} 2>&1`), /1 packets received|1 received/);
  await rig.client.policies.delete({ name: "learned-free" });
  t.is(await tls("free", other), "16");
});

test.serial("while podnetd is dead, and once it is back, all is as it was", async (t) => {
  const before = relays();
  await rig.daemon.kill();
  const seen = rig.lab.host.run("ss", "-Hltn", "sport = :15443");
  t.regex(await seen, /:15443/, "the relay goes on");
  await rig.restart("kill");
  t.is(await tls("sandbox", api), "16", "answers still hold");
  t.is(await tls("sandbox", other), "15");
  await enforced(t);
  t.deepEqual(relays(), before);
});

test.serial("a relay that ends is replaced, and has what the one before it had", async (t) => {
  const [before = 0] = relays();
  process.kill(before, "SIGKILL");
  await until("another relay", () => relays().some((pid) => pid !== before));
  await until("an open way", async () => (await tls("sandbox", api)) === "16");
  await enforced(t);
});

test.serial("a name that is not allowed any more is cut at once", async (t) => {
  await lookUp("sandbox", api);
  const hello = await helloFor(api);
  const open = sh(
    "sandbox",
    `mkfifo /tmp/f; exec 3<>/tmp/f; echo ${hello} | base64 -d >&3; nc ${internet} 443 </tmp/f >/tmp/said; wc -c </tmp/said`,
  );
  await until(
    "the server's hello",
    async () => Number(await sh("sandbox", "wc -c </tmp/said 2>/dev/null")) > 0,
  );
  await apply(sandbox([]));
  t.true(Number(await open) > 0);
  t.is(await tls("sandbox", api), "");
  t.regex(await lookUp("sandbox", api), new RegExp(internet.replaceAll(".", "\\.")), "no names");
});

test.serial("without the relay a pod's names are closed", async (t) => {
  await until("the relay's end", () => relays().length === 0);
  await apply(allowed);
  await lookUp("sandbox", api);
  t.is(await tls("sandbox", api), "16");
  const [relay = 0] = relays();
  await rig.daemon.kill();
  process.kill(relay, "SIGKILL");
  await until("its end", () => relays().length === 0);
  const closed = await rig.lab.host.run("nft", "list", "map", "inet", "podnet_policy", "relay4");
  t.regex(closed, /jump policy_/);
  await rig.restart("kill");
  await lookUp("sandbox", api);
  await enforced(t);
});

test.serial("rules with domains for other ports are refused, and change nothing", async (t) => {
  const wrong = (more: JsonObject) =>
    apply(sandbox([{ name: "ssh", action: "allow", domains: [api], ...more }]));
  for (const more of [{ ports: [22] }, { ports: ["80-443"] }, { protocol: "udp", ports: [443] }])
    t.like(await t.throwsAsync(wrong(more)), { code: "UNSUPPORTED", field: "rules[0].ports" });
  await enforced(t);
});

test.serial("without its policy a pod is free, and no relay is left", async (t) => {
  await rig.client.policies.delete({ name: "sandbox" });
  t.is(await tls("sandbox", other), "16");
  t.deepEqual(relays(), []);
  t.notRegex(await rig.lab.host.run("nft", "list", "ruleset"), /redirect to/);
});
