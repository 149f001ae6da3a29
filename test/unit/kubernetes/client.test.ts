import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { isPodnetError, type PodnetError } from "../../../core/errors.ts";
import { KubeClient } from "../../../kubernetes/client.ts";
import type { WatchEvent } from "../../../kubernetes/objects.ts";
import { allRights, KubeApiServer } from "../../peers/kube-api/server.ts";
import { makeCertificates } from "../api/fixtures/certificates.ts";
import { clientOf, never, nodesPath } from "./fixtures.ts";

const failure = async (call: Promise<unknown>): Promise<PodnetError> => {
  const thrown: unknown = await call.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (isPodnetError(thrown)) return thrown;
  throw new Error("It did not fail, or otherwise", { cause: thrown });
};

test("a list comes in parts, and is whole", async (t) => {
  await using server = await KubeApiServer.open();
  for (let n = 0; n < 25; n++) server.nodes.create(`node-${n}`);
  const client = clientOf(server, { limits: { pageItems: 10 } });
  const { items, resourceVersion } = await client.list(nodesPath, "list nodes", never);
  t.is(items.length, 25);
  t.is(new Set(items.map(({ name }) => name)).size, 25);
  t.is(resourceVersion, String(server.nodes.version));
  t.is(server.asked.length, 3);
});

test("a list whose later parts are gone is begun again", async (t) => {
  await using server = await KubeApiServer.open();
  for (let n = 0; n < 4; n++) server.nodes.create(`node-${n}`);
  const client = clientOf(server, { limits: { pageItems: 2 } });
  server.onAnswered = () => {
    server.onAnswered = () => {};
    server.nodes.create("node-9");
    server.nodes.compact();
  };
  const { items } = await client.list(nodesPath, "list nodes", never);
  t.is(items.length, 5);
  // One part, the refusal of the second, and three parts.
  t.is(server.asked.length, 5);
});

test("parts that are too large are asked for in smaller ones", async (t) => {
  await using server = await KubeApiServer.open();
  const big = { "example.org/big": "x".repeat(100_000) };
  for (let n = 0; n < 8; n++) server.nodes.create(`node-${n}`, { metadata: { annotations: big } });
  const client = clientOf(server, { limits: { pageItems: 8, pageBytes: 250_000 } });
  const { items } = await client.list(nodesPath, "list nodes", never);
  t.is(items.length, 8);
  const tight = clientOf(server, { limits: { pageBytes: 50_000 } });
  const error = await failure(tight.list(nodesPath, "list nodes", never));
  t.is(error.code, "KUBERNETES_FAILED");
  t.regex(error.message, /an object of more than 50000 bytes/);
});

test("a patch under a condition that does not hold is a conflict", async (t) => {
  await using server = await KubeApiServer.open();
  const made = server.nodes.create("a");
  const client = clientOf(server);
  const patch = (resourceVersion: string) => ({
    metadata: { resourceVersion, annotations: { "example.org/x": "1" } },
  });
  const path = `${nodesPath}/a/status`;
  const { resourceVersion } = made.metadata;
  const changed = await client.patch(path, patch(resourceVersion), "patch node", never);
  t.not(changed.resourceVersion, resourceVersion);
  const error = await failure(client.patch(path, patch(resourceVersion), "patch node", never));
  t.is(error.code, "KUBERNETES_CONFLICT");
  t.regex(error.message, /the object has been modified/);
});

test("a token that has expired is read again from its file", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("a");
  let token = "token-1";
  // The file is replaced between the first reading and the answer.
  const client = clientOf(server, {
    token: () => {
      const read = token;
      token = "token-2";
      return read;
    },
  });
  const account = server.accounts.get("token-1");
  if (account !== undefined) account.expiresAt = 0;
  server.accounts.set("token-2", { user: "podnetd", rights: allRights });
  const found = await client.get(`${nodesPath}/a`, "get node", never);
  t.is(found?.name, "a");
  t.is(server.asked.length, 2);
});

test("an expired token without a newer one is refused once, and said so", async (t) => {
  await using server = await KubeApiServer.open();
  server.accounts.clear();
  const error = await failure(clientOf(server).get(`${nodesPath}/a`, "get node", never));
  t.is(error.code, "KUBERNETES_DENIED");
  t.is(error.details["status"], 401);
  t.is(server.asked.length, 1);
});

test("a missing right is named", async (t) => {
  await using server = await KubeApiServer.open();
  server.accounts.set("token-1", { user: "podnetd", rights: ["get nodes"] });
  const error = await failure(clientOf(server).list(nodesPath, "list nodes", never));
  t.is(error.code, "KUBERNETES_DENIED");
  t.regex(error.message, /User "podnetd" cannot list resource "nodes"/);
});

test("an absent object is none, and not an error", async (t) => {
  await using server = await KubeApiServer.open();
  t.is(await clientOf(server).get(`${nodesPath}/a`, "get node", never), undefined);
});

for (const [what, code, body, expected] of [
  ["a page of a proxy", 200, "<html>Log in</html>", "KUBERNETES_FAILED"],
  ["a redirection", 302, "", "KUBERNETES_FAILED"],
  ["an overload", 429, "Too many requests", "KUBERNETES_UNREACHABLE"],
  ["a server that starts", 503, "", "KUBERNETES_UNREACHABLE"],
  ["a list without a version", 200, '{"items":[]}', "KUBERNETES_FAILED"],
  [
    "a node without a name",
    200,
    '{"items":[{}],"metadata":{"resourceVersion":"1"}}',
    "KUBERNETES_FAILED",
  ],
  [
    "items that are no list",
    200,
    '{"items":7,"metadata":{"resourceVersion":"1"}}',
    "KUBERNETES_FAILED",
  ],
] as const)
  test(`${what} in the place of an answer is ${expected}`, async (t) => {
    await using server = await KubeApiServer.open();
    server.answerNext(code, body, code === 302 ? { location: "http://127.0.0.1:1/" } : {});
    const error = await failure(clientOf(server).list(nodesPath, "list nodes", never));
    t.is(error.code, expected);
    t.true(error.message.length < 1500);
  });

for (const [what, items, expected] of [
  ["full", [{ metadata: { name: "a", uid: "1", resourceVersion: "1" } }], /more than 30 objects/],
  ["empty", [], /never ends/],
] as const)
  test(`a list that never ends, of ${what} parts, is given up`, async (t) => {
    const metadata = { resourceVersion: "1", continue: "more" };
    let asked = 0;
    const server = createServer((_, response) => {
      asked += 1;
      response.end(JSON.stringify({ items, metadata }));
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    t.teardown(() => server.close());
    const { port } = server.address() as AddressInfo;
    const access = { server: new URL(`http://127.0.0.1:${port}`), insecure: false };
    const client = new KubeClient({ ...access, credentials: () => ({}) }, { listItems: 30 });
    const error = await failure(client.list(nodesPath, "list nodes", never));
    t.is(error.code, "KUBERNETES_FAILED");
    t.regex(error.message, expected);
    t.true(asked < 200, `${asked} parts`);
  });

test("a list of objects that are too large together is given up", async (t) => {
  await using server = await KubeApiServer.open();
  for (let n = 0; n < 20; n++) server.nodes.create(`node-${n}`);
  const client = clientOf(server, { limits: { pageItems: 3, listBytes: 2000 } });
  const error = await failure(client.list(nodesPath, "list nodes", never));
  t.is(error.code, "KUBERNETES_FAILED");
  t.regex(error.message, /more than 2000 bytes/);
  t.true(server.asked.length < 7, "the rest is not asked for");
});

test("an object of any size is an answer or an error of this module", async (t) => {
  await using server = await KubeApiServer.open();
  const client = clientOf(server, { limits: { pageBytes: 100 } });
  for (const call of [
    () => client.get(`${nodesPath}/a`, "get node", never),
    () => client.patch(`${nodesPath}/a/status`, {}, "patch node", never),
  ]) {
    server.answerNext(200, "x".repeat(200), {});
    const error = await failure(call());
    t.is(error.code, "KUBERNETES_FAILED");
    t.regex(error.message, /object of more than 100 bytes/);
  }
});

test("what an API server says is one line without what a terminal obeys, and bounded", async (t) => {
  await using server = await KubeApiServer.open();
  const status = { message: "a\nb\u001b[2J\u202e", reason: "R".repeat(60_000), code: 403 };
  server.answerNext(403, JSON.stringify(status), {});
  const error = await failure(clientOf(server).list(nodesPath, "list nodes", never));
  t.is(error.code, "KUBERNETES_DENIED");
  t.regex(error.message, /: a b/);
  t.notRegex(error.message, /[\u0000-\u001f\u202e]/);
  t.true(JSON.stringify(error.details).length < 2000);
});

test("a server that is not there is unreachable", async (t) => {
  const server = await KubeApiServer.open();
  const client = clientOf(server);
  await server[Symbol.asyncDispose]();
  const error = await failure(client.get(`${nodesPath}/a`, "get node", never));
  t.is(error.code, "KUBERNETES_UNREACHABLE");
  t.is(error.details["errno"], "ECONNREFUSED");
});

test("a server of another authority is not spoken to, and is sent no token", async (t) => {
  const [ours, theirs] = await Promise.all(
    ["ours", "theirs"].map(async () => {
      const folder = mkdtempSync(path.join(tmpdir(), "podnet-kube-tls-"));
      t.teardown(() => rmSync(folder, { recursive: true }));
      return makeCertificates(folder, "IP:127.0.0.1");
    }),
  );
  if (ours === undefined || theirs === undefined) throw new Error("No certificates");
  await using server = await KubeApiServer.open({ tls: ours.server });
  server.nodes.create("a");
  const of = (ca: string, serverName?: string) =>
    new KubeClient({
      server: new URL(server.url),
      insecure: false,
      credentials: () => ({ token: "token-1", ca }),
      ...(serverName === undefined ? {} : { serverName }),
    });
  const call = (client: KubeClient) => client.get(`${nodesPath}/a`, "get node", never);
  const foreign = await failure(call(of(theirs.ca)));
  t.is(foreign.code, "KUBERNETES_DENIED");
  const misnamed = await failure(call(of(ours.ca, "api.example.org")));
  t.is(misnamed.code, "KUBERNETES_DENIED");
  t.deepEqual(server.asked, []);
  t.is((await call(of(ours.ca)))?.name, "a");
});

test("a client certificate is shown to a server that asks for one", async (t) => {
  const folder = mkdtempSync(path.join(tmpdir(), "podnet-kube-tls-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const { ca, server: pair, client: own } = await makeCertificates(folder, "IP:127.0.0.1");
  await using server = await KubeApiServer.open({ tls: { ...pair, ca } });
  server.nodes.create("a");
  const of = (more: object) =>
    new KubeClient({
      server: new URL(server.url),
      insecure: false,
      credentials: () => ({ ca, token: "token-1", ...more }),
    });
  t.is((await of(own).get(`${nodesPath}/a`, "get node", never))?.name, "a");
  await failure(of({}).get(`${nodesPath}/a`, "get node", never));
  const broken = await failure(
    of({ cert: "x", key: "x" }).get(`${nodesPath}/a`, "get node", never),
  );
  t.is(broken.code, "KUBERNETES_DENIED");
});

test("a watch reports changes after a version, whatever its chunks are, and bookmarks", async (t) => {
  await using server = await KubeApiServer.open({ chunk: () => 1, bookmarkMs: 20 });
  const made = server.nodes.create("a");
  const over = new AbortController();
  const client = clientOf(server);
  const from = made.metadata.resourceVersion;
  const events: WatchEvent[] = [];
  for await (const event of client.watch(nodesPath, from, "watch nodes", over.signal)) {
    if (event.kind === "open") {
      server.nodes.annotate("a", { "backend-type": "é, 緑" });
      server.nodes.delete("a");
      continue;
    }
    // A bookmark may come before the changes.
    if (event.kind === "bookmark" && events.length === 0) continue;
    events.push(event);
    if (event.kind === "bookmark") break;
  }
  t.deepEqual(
    events.map(({ kind }) => kind),
    ["put", "delete", "bookmark"],
  );
  t.regex(JSON.stringify(events[0]), /é, 緑/);
});

test("a watch from a version that is gone has expired, as an event and as a status", async (t) => {
  await using server = await KubeApiServer.open();
  const made = server.nodes.create("a");
  server.nodes.create("b");
  server.nodes.compact();
  const client = clientOf(server);
  for (const as of ["event", "status"] as const) {
    server.expiredAs = as;
    const from = made.metadata.resourceVersion;
    const watch = client.watch(nodesPath, from, "watch nodes", never);
    const error = await failure(Array.fromAsync(watch));
    t.is(error.code, "KUBERNETES_EXPIRED");
  }
});

test("a watch from a version that a restored server has not reached has expired", async (t) => {
  await using server = await KubeApiServer.open();
  const { resourceVersion } = server.nodes.create("a").metadata;
  server.nodes.restore();
  const watch = clientOf(server).watch(nodesPath, resourceVersion, "watch nodes", never);
  t.is((await failure(Array.fromAsync(watch))).code, "KUBERNETES_EXPIRED");
});

test("a watch that is silent is given up", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("a");
  const client = clientOf(server, { limits: { silentMs: 100 } });
  const version = String(server.nodes.version);
  const watch = client.watch(nodesPath, version, "watch nodes", never);
  const error = await failure(Array.fromAsync(watch));
  t.is(error.code, "KUBERNETES_UNREACHABLE");
  t.regex(error.message, /silent/);
});
