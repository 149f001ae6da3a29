import { existsSync, readFileSync } from "node:fs";
import test from "ava";
import { clientHellos } from "../fixtures/starts.ts";
import { childrenOf, RelaySite, siteAddresses } from "../lab/relay-site.ts";
import { until } from "../lab/until.ts";

const { one, two, six } = siteAddresses;
const get = (host: string, path = "/"): string => `GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
const allowed = {
  rules: [
    {
      name: "api",
      reason: "what it is for",
      action: "allow",
      domains: ["api.example", "*.cdn.example"],
    },
  ],
};
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

/** A site with a policy that allows two names, which the pod has asked for. */
async function openSite(policy: object = allowed): Promise<RelaySite> {
  const site = await RelaySite.open();
  await site.policy(policy);
  await site.answer({
    "api.example": [one, six],
    "a.cdn.example": [two],
    "other.example": [one],
  });
  return site;
}

test.serial(
  "a name that is allowed is reached, by TLS of any version and by HTTP, in both families",
  async (t) => {
    await using site = await openSite();
    const https = "https://api.example/x";
    t.is(await site.curl(https, one), `at=${one} sni=api.example host=api.example /x\n`);
    t.is(
      await site.curl(https, one, "--tls-max", "1.2"),
      `at=${one} sni=api.example host=api.example /x\n`,
    );
    t.is(await site.curl(https, six), `at=${six} sni=api.example host=api.example /x\n`);
    t.is(await site.curl("http://api.example/y", one), `at=${one} sni=- host=api.example /y\n`);
    t.is(await site.curl("http://api.example/y", six), `at=${six} sni=- host=api.example /y\n`);
    // A large answer passes whole.
    t.is((await site.curl("https://api.example/bytes/20000000", one)).length, 20_000_000);
    const verdicts = new Set(
      site.verdicts.map(({ verdict, rule, name }) => `${verdict} ${rule} ${name}`),
    );
    t.deepEqual([...verdicts], ["allow api api.example"]);
  },
);

test.serial(
  "names that share an address do not open each other, and a denial says why at once",
  async (t) => {
    await using site = await openSite();
    // Control: the other name on the address is reached.
    t.regex(await site.curl("https://api.example/", one), /sni=api.example/);
    // curl's 35: the server ended the handshake by an alert.
    t.is(await site.curl("https://other.example/", one), "exit 35");
    const alert = await site.visit({
      host: one,
      port: 443,
      tls: { servername: "other.example" },
      says: "x",
    });
    t.is(alert.ended, "reset");
    t.is(
      await site.curl("http://other.example/", one),
      "podnet denies other.example: policy p, rule default: no rule allows it\n",
    );
    t.is(
      await site.curl("http://other.example/", one, "-o", "/dev/null", "-w", "%{http_code}"),
      "403",
    );
    const denied = site.verdicts.filter(({ verdict }) => verdict === "deny");
    t.deepEqual(
      denied.map(({ pod, name, policy, rule, to }) => [pod, name, policy, rule, to?.ip, to?.port]),
      [
        ["pod", "other.example", "p", "default", one, 443],
        ["pod", "other.example", "p", "default", one, 443],
        ["pod", "other.example", "p", "default", one, 80],
        ["pod", "other.example", "p", "default", one, 80],
      ] as never,
    );
  },
);

test.serial(
  "an allowed name leads to its own addresses, whatever address the pod connects to",
  async (t) => {
    await using site = await openSite();
    t.regex(await site.curl("https://a.cdn.example/", two), new RegExp(`at=${two} `));
    t.regex(await site.curl("https://a.cdn.example/", one), new RegExp(`at=${two} `));
    t.regex(await site.curl("http://a.cdn.example/", one), new RegExp(`at=${two} `));
  },
);

test.serial(
  "a name that the resolver never gave the pod is closed, and one whose answer has ended",
  async (t) => {
    await using site = await openSite();
    t.is(await site.curl("https://b.cdn.example/", two), "exit 35");
    t.regex(
      await site.curl("http://b.cdn.example/", two),
      /rule api: the resolver never gave it this name/,
    );
    await site.answer({ "b.cdn.example": [two] }, 1);
    t.regex(await site.curl("https://b.cdn.example/", two), /sni=b.cdn.example/);
    await until(
      "the answer to end",
      async () => (await site.curl("https://b.cdn.example/", two)) === "exit 35",
    );
  },
);

test.serial("a name that leads inside, to the host or to metadata is not dialled", async (t) => {
  await using site = await openSite();
  for (const inside of [
    "127.0.0.1",
    "10.1.2.3",
    "169.254.169.254",
    "192.168.1.1",
    "fd00::1",
    "198.51.100.2",
  ]) {
    const name = `n${inside.replaceAll(/[.:]/g, "-")}.cdn.example`;
    await site.answer({ [name]: [inside] });
    t.regex(await site.curl(`http://${name}/`, two), /^podnet denies/, inside);
    t.is(await site.curl(`https://${name}/`, two), "exit 35", inside);
  }
  // Control: with an address outside such a name is reached.
  await site.answer({ "control.cdn.example": [two] });
  t.regex(await site.curl("https://control.cdn.example/", two), /sni=control/);
});

test.serial(
  "a ClientHello is read in single bytes, with a post-quantum key share, and before its end",
  async (t) => {
    await using site = await openSite();
    const tls = { servername: "api.example" };
    const answer = await site.visit({
      host: one,
      port: 443,
      tls,
      says: get("api.example"),
      waitMs: 1000,
    });
    t.regex(answer.data, /sni=api.example/);
    const hello = clientHellos.get("node-24-post-quantum") as Uint8Array;
    await site.answer({ "api.example.com": [one] });
    await site.policy({
      rules: [{ name: "captured", action: "allow", domains: ["api.example.com"] }],
    });
    const slowly = await site.visits({
      host: one,
      port: 443,
      pieces: Array.from({ length: 60 }, (_, i) => base64(hello.subarray(i * 27, (i + 1) * 27))),
      pauseMs: 2,
      waitMs: 500,
    });
    // The server's own hello: a record of a handshake.
    t.is(slowly[0]?.data.charCodeAt(0), 22);
    const half = await site.visit({
      host: one,
      port: 443,
      says: Buffer.from(hello.subarray(0, 800)).toString("latin1"),
      waitMs: 500,
    });
    t.deepEqual(half, { data: "", ended: "open" });
  },
);

test.serial(
  "what hides its name is refused: Encrypted Client Hello, no SNI, HTTP/2 without TLS, other protocols",
  async (t) => {
    await using site = await openSite();
    const hello = clientHellos.get("openssl-3.0-no-name") as Uint8Array;
    const alert = String.fromCharCode(21, 3, 3, 0, 2, 2, 49);
    const ask = (says: string): ReturnType<typeof site.visit> =>
      site.visit({ host: one, port: 443, says });
    t.is((await ask(Buffer.from(hello).toString("latin1"))).data, alert, "no SNI");
    t.is((await ask(Buffer.from(withEch(hello)).toString("latin1"))).data, alert, "ECH");
    t.regex((await ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")).data, /HTTP\/2 without TLS may name/);
    t.regex(
      (await ask("CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n")).data,
      /asks for a tunnel/,
    );
    t.deepEqual(await ask("SSH-2.0-OpenSSH_9.2\r\n"), { data: "", ended: "reset" });
    t.deepEqual(await ask("\u0000\u0001"), { data: "", ended: "reset" });
    t.true(
      site.verdicts.some(({ reason }) => /Encrypted Client Hello hides the name/.test(reason)),
    );
  },
);

test.serial(
  "HTTP as to a proxy passes, and no second request follows the first to another host",
  async (t) => {
    await using site = await openSite();
    const ask = (says: string): ReturnType<typeof site.visit> =>
      site.visit({ host: one, port: 80, says });
    const proxied = await ask("GET http://api.example/z HTTP/1.1\r\nHost: api.example\r\n\r\n");
    t.regex(proxied.data, /host=api.example \/z|host=api.example http:\/\/api.example\/z/);
    t.regex(
      (await ask("GET http://other.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n")).data,
      /403/,
    );
    const two = await ask(get("api.example", "/first") + get("other.example", "/second"));
    t.regex(two.data, /\/first/);
    t.notRegex(two.data, /\/second/);
    t.is(two.ended, "end");
  },
);

test.serial("WebSocket passes; what does not become one sends no second request", async (t) => {
  await using site = await openSite();
  const handshake = (path: string): string =>
    `GET ${path} HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\n\r\n`;
  const visit = { host: one, port: 80, pauseMs: 200, waitMs: 500 } as const;
  const pieces = (...texts: readonly string[]): string[] =>
    texts.map((text) => Buffer.from(text).toString("base64"));
  const [chat] = await site.visits({ ...visit, pieces: pieces(handshake("/chat"), "ping") });
  t.regex(chat?.data ?? "", /^HTTP\/1\.1 101 .*ping$/s);
  const [refused] = await site.visits({
    ...visit,
    pieces: pieces(handshake("/refused"), get("other.example")),
  });
  t.regex(refused?.data ?? "", /^HTTP\/1\.1 400/);
  t.notRegex(refused?.data ?? "", /again/);
  t.is(refused?.ended, "reset");
});

test.serial("connections that say nothing take a pod's own share, and are ended", async (t) => {
  t.timeout(60_000);
  await using site = await openSite();
  const silent = site.visits({ host: one, port: 443, pieces: [], times: 140, waitMs: 15_000 });
  await until("the limit", () => site.verdicts.some(({ rule }) => rule === "relay-limit"));
  const ends = (await silent).map(({ ended }) => ended);
  // Twelve had no place; the others had their ten seconds.
  t.deepEqual([...new Set(ends)], ["reset"]);
  await until(
    "the verdicts",
    () =>
      site.verdicts
        .filter(({ reason }) => /no name within/.test(reason))
        .reduce((sum, { count }) => sum + count, 0) === 128,
  );
  t.regex(await site.curl("https://api.example/", one), /sni=api.example/);
});

test.serial(
  "an address that a rule allows passes without a name, and a changed policy cuts it",
  async (t) => {
    await using site = await openSite({
      rules: [...allowed.rules, { name: "own", action: "allow", cidrs: [`${two}/32`] }],
    });
    t.regex(await site.curl(`https://${two}/`, two), /sni=- /);
    t.is(await site.curl(`https://${one}/`, one), "exit 35");
    // Two requests on one connection: an allowed address is passed on as it is.
    const both = await site.visit({
      host: two,
      port: 80,
      says: get("x.test", "/1") + get("y.test", "/2"),
      waitMs: 500,
    });
    t.regex(both.data, /\/1.*\/2/s);
    const open = site.visit({ host: two, port: 80, says: get("z.test"), waitMs: 10_000 });
    await until("the connection", () =>
      site.verdicts.some(({ rule, name }) => rule === "own" && name === "z.test"),
    );
    const before = performance.now();
    await site.policy(allowed);
    t.is((await open).ended, "reset");
    t.log(
      `cut ${Math.round(performance.now() - before)} ms after the change, the client's own end included`,
    );
  },
);

test.serial(
  "without the relay, and for sources and destinations it does not know, all is closed",
  async (t) => {
    await using site = await openSite();
    t.is(
      (await site.visit({ host: "192.0.2.1", port: 4443, says: get("api.example") })).ended,
      "reset",
    );
    await site.say({ type: "begin" });
    await site.say({ type: "commit" });
    // Without Node's TLS: it takes a reset that comes before its hello has gone for an end.
    t.is((await site.visit({ host: one, port: 80, says: get("api.example") })).ended, "reset");
    await site.policy(allowed);
    await site.answer({ "api.example": [one] });
    t.regex(await site.curl("https://api.example/", one), /sni=api.example/);
    site.relay.kill("SIGKILL");
    await until(
      "the end",
      async () => (await site.visit({ host: one, port: 443 })).ended === "refused",
    );
  },
);

test.serial(
  "the relay does all this without capabilities, as a user of its own, with only its files",
  async (t) => {
    const uid = 2_000_060_009;
    await using site = await RelaySite.open(uid);
    await site.policy(allowed);
    await site.answer({ "api.example": [one, six] });
    t.regex(await site.curl("https://api.example/", one), /sni=api.example/);
    t.regex(await site.curl("http://api.example/", six), /host=api.example/);
    t.is(await site.curl("https://other.example/", one), "exit 35");
    const [pid] = childrenOf(site.relay.pid as number);
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    for (const each of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
      t.regex(status, new RegExp(`^${each}:\\t0+$`, "m"), each);
    t.regex(status, new RegExp(`^Uid:\\t${uid}\\t${uid}\\t${uid}\\t${uid}$`, "m"));
    t.regex(status, /^NoNewPrivs:\t1$/m);
    t.regex(status, /^Seccomp:\t2$/m);
    t.regex(readFileSync(`/proc/${pid}/limits`, "utf8"), /^Max open files +2100 +2100/m);
    for (const hidden of ["etc/passwd", "root", "run/netns", "home"])
      t.false(existsSync(`/proc/${pid}/root/${hidden}`), hidden);
  },
);

/** The ClientHello with the extension of ECH appended. */
function withEch(hello: Uint8Array): Uint8Array {
  const extension = [0xfe, 0x0d, 0, 4, 0, 0, 1, 0];
  const bytes = [...hello, ...extension];
  const add = (at: number): void => {
    const value = ((bytes[at] ?? 0) << 8) + (bytes[at + 1] ?? 0) + extension.length;
    [bytes[at], bytes[at + 1]] = [value >> 8, value & 255];
  };
  // Lengths of the record, of the message, and of the extensions behind the other fields.
  add(3);
  add(7);
  const session = 44 + (bytes[43] ?? 0);
  const suites = session + 2 + ((bytes[session] ?? 0) << 8) + (bytes[session + 1] ?? 0);
  add(suites + 1 + (bytes[suites] ?? 0));
  return Uint8Array.from(bytes);
}
