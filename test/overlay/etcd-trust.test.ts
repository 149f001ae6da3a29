import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { connectEtcd, type EtcdOptions } from "../../etcd/client.ts";
import type { PodnetError } from "../../core/errors.ts";
import type { Etcd, Txn, Watched } from "../../etcd/etcd.ts";
import { type EtcdLab, startEtcd } from "../lab/etcd.ts";
import { makeCertificates } from "../unit/api/fixtures/certificates.ts";

let lab: EtcdLab;
let folder: string;
/** Long enough for a machine that is busy: what is tested here is who gets in. */
const timing = { callMs: 10_000, answerMs: 10_000 };

test.before(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "etcd-trust-"));
  lab = await startEtcd({ tls: true });
});

test.after.always(async () => {
  await lab?.[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const as = (options: Partial<EtcdOptions>): Etcd & Disposable =>
  connectEtcd({ ...lab.client, timing, ...options });

/** A key that can be read by whoever gets in. */
const read = (etcd: Etcd): Promise<unknown> => etcd.range({ key: "/trust/a" });

/** The first word of a watch. */
async function firstOf(watch: AsyncIterable<Watched>): Promise<string> {
  for await (const { kind } of watch) return kind;
  return "nothing";
}
const watch = (etcd: Etcd): Promise<string> =>
  firstOf(etcd.watch({ key: "/trust/a" }, { from: 1n }));

test.serial("with the right certificates there is an answer", async (t) => {
  using etcd = as({});
  await t.notThrowsAsync(read(etcd));
  t.is(await watch(etcd), "alive");
});

test.serial("an etcd of another authority is not spoken to", async (t) => {
  const { ca, client } = await makeCertificates(folder);
  const good = lab.client.tls;
  for (const [what, tls] of [
    ["the system's authorities", {}],
    ["another authority", { ...good, ca }],
    ["another's certificate", { ...good, ...client }],
    ["no certificate", { ca: good?.ca ?? "" }],
    // Refused before there is a connection.
    ["a key that is none", { ...good, key: "-----BEGIN PRIVATE KEY-----" }],
  ] as const) {
    using etcd = as({ tls });
    await t.throwsAsync(read(etcd), { code: "ETCD_DENIED" }, what);
    await t.throwsAsync(watch(etcd), { code: "ETCD_DENIED" }, what);
  }
});

test.serial(
  "an etcd that is called something else than its certificate is not spoken to",
  async (t) => {
    // That etcd by an address that its certificate has not.
    const [member] = lab.members;
    const elsewhere = member?.address.replace(/\d+$/, "255") ?? "";
    const relay = createServer((socket) => {
      const there = connect(2379, member?.address ?? "");
      socket.pipe(there).pipe(socket);
      socket.on("error", () => there.destroy());
      there.on("error", () => socket.destroy());
    }).listen(2379, elsewhere);
    await once(relay, "listening");
    t.teardown(() => relay.close());
    const endpoint = `https://${elsewhere}:2379`;
    using etcd = as({ endpoints: [endpoint] });
    await t.throwsAsync(read(etcd), { code: "ETCD_DENIED", message: /does not match/ });
  },
);

test.serial("one that speaks no TLS is no etcd of https", async (t) => {
  using etcd = as({ endpoints: lab.client.endpoints.map((url) => url.replace("https", "http")) });
  await t.throwsAsync(read(etcd), { code: "ETCD_UNREACHABLE" });
});

test.serial("a user gets in with the password, and does what the role permits", async (t) => {
  using anonymous = as({});
  await read(anonymous);
  // A password that anonymous asks for is none that is wrong.
  using early = as({ credentials: { user: "root", password: "secret" } });
  await t.notThrowsAsync(read(early));
  await lab.requirePassword("secret");
  await t.throwsAsync(read(anonymous), { code: "ETCD_DENIED" });
  await t.throwsAsync(watch(anonymous), { code: "ETCD_DENIED" });
  using wrong = as({ credentials: { user: "root", password: "guessed" } });
  await t.throwsAsync(read(wrong), { code: "ETCD_DENIED", message: /invalid user ID or password/ });
  using right = as({ credentials: { user: "root", password: "secret" } });
  await t.notThrowsAsync(read(right));
  t.is(await watch(right), "alive");
  await lab.etcdctl("user", "add", "reader:pw");
  await lab.etcdctl("role", "add", "reads");
  await lab.etcdctl("role", "grant-permission", "reads", "read", "/trust/", "/trust0");
  await lab.etcdctl("user", "grant-role", "reader", "reads");
  using reader = as({ credentials: { user: "reader", password: "pw" } });
  await t.notThrowsAsync(read(reader));
  t.is(await watch(reader), "alive");
  // Of what the role does not permit it is said which right is missing for what keys, which etcd
  // does not say.
  const txn: Txn = {
    when: [{ key: "/trust/a", target: "version", is: "=", value: 1n }],
    do: [{ kind: "put", key: "/trust/b/c", value: "" }],
    otherwise: [{ kind: "range", where: { key: "/trust/a" } }],
  };
  const puts: Txn = { ...txn, when: [], otherwise: [] };
  for (const [call, message, hint] of [
    [reader.put("/trust/a", ""), 'write key "/trust/a"', "write /trust/a"],
    [reader.delete({ prefix: "/t" }), 'write keys that begin with "/t"', "write --prefix=true /t"],
    [reader.range({ key: "/other" }), 'read key "/other"', "read /other"],
    [
      reader.txn(txn),
      'read and write keys that begin with "/trust/"',
      "readwrite --prefix=true /trust/",
    ],
    [reader.txn(puts), 'write keys that begin with "/trust/b/"', "write --prefix=true /trust/b/"],
    [
      firstOf(reader.watch({ prefix: "/other" }, { from: 1n })),
      'read keys that begin with "/other"',
      "read --prefix=true /other",
    ],
  ] as const) {
    const error = await t.throwsAsync<PodnetError>(call, { code: "ETCD_DENIED" });
    t.is(error?.message, `User "reader" may not ${message} in etcd`);
    t.is(error?.hint, `Permit it: etcdctl role grant-permission ROLE ${hint}`);
  }
});

test.serial(
  "a token that etcd has forgotten is asked for again, once, by calls and by watches",
  async (t) => {
    const [member] = lab.members;
    using calls = as({});
    using watches = as({});
    await read(calls);
    await watch(watches);
    await member?.kill();
    member?.start();
    await lab.ready();
    await t.notThrowsAsync(read(calls));
    t.is(await watch(watches), "alive");
    await t.notThrowsAsync(calls.put("/trust/a", "again"));
    // Users have changed: the token is of before.
    await lab.etcdctl("user", "add", "another:pw");
    await t.notThrowsAsync(calls.put("/trust/a", "and again"));
  },
);
