import test from "ava";
import { follow, type Followed } from "../../../kubernetes/follow.ts";
import { until } from "../../lab/until.ts";
import { allRights, KubeApiServer, type Options } from "../../peers/kube-api/server.ts";
import { Random } from "../../sim/random.ts";
import { clientOf, nodesPath } from "./fixtures.ts";

/** Follows the stand-in, and keeps what was reported. */
class Reader implements AsyncDisposable {
  readonly versions = new Map<string, string>();
  readonly kinds: Followed["kind"][] = [];
  readonly #over = new AbortController();
  readonly #reading: Promise<void>;
  stale: string | undefined;

  constructor(server: KubeApiServer, token: () => string = () => "token-1") {
    const client = clientOf(server, { token, limits: { pageItems: 3 } });
    const options = {
      signal: this.#over.signal,
      what: "nodes",
      // (Growing pauses are looked at elsewhere.)
      pause: () => new Promise<void>((resolve) => setTimeout(resolve, 5)),
    };
    this.#reading = this.#read(follow(client, nodesPath, options));
  }

  async #read(all: AsyncIterable<Followed>): Promise<void> {
    for await (const followed of all) {
      this.kinds.push(followed.kind);
      this.stale = followed.kind === "stale" ? followed.reason.code : undefined;
      if (followed.kind === "snapshot") {
        this.versions.clear();
        for (const { name, resourceVersion } of followed.objects)
          this.versions.set(name, resourceVersion);
      }
      if (followed.kind === "put")
        this.versions.set(followed.object.name, followed.object.resourceVersion);
      if (followed.kind === "delete") this.versions.delete(followed.object.name);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#reading;
  }
}

const agree = async (server: KubeApiServer, reader: Reader): Promise<void> => {
  const wanted = (): string =>
    JSON.stringify(
      server.nodes.all().map(({ metadata }) => [metadata.name, metadata.resourceVersion]),
    );
  await until("the follower to know all Nodes", () => {
    const found = JSON.stringify([...reader.versions].toSorted(([a], [b]) => (a < b ? -1 : 1)));
    return found === wanted();
  });
};

const seed = Number(process.env["PODNET_SEED"] ?? Math.floor(Date.now() / 86_400_000));

test(`a follower knows what there is through cuts, compactions and ends (seed ${seed})`, async (t) => {
  const random = new Random(seed);
  const options: Options = { chunk: (left) => 1 + random.below(left), bookmarkMs: 15 };
  await using server = await KubeApiServer.open(options);
  for (let n = 0; n < 7; n++) server.nodes.create(`node-${n}`);
  await using reader = new Reader(server);
  await agree(server, reader);
  for (let round = 0; round < 60; round++) {
    const name = `node-${random.below(10)}`;
    const there = server.nodes.get(name) !== undefined;
    if (!there) server.nodes.create(name);
    else if (random.chance(0.3)) server.nodes.delete(name);
    else server.nodes.annotate(name, { "backend-data": "é".repeat(random.below(200)) });
    if (random.chance(0.15)) server.cut();
    if (random.chance(0.1)) server.endWatches();
    if (random.chance(0.1)) {
      server.cut();
      server.nodes.compact();
    }
    server.expiredAs = random.chance(0.5) ? "event" : "status";
    if (random.chance(0.3)) await agree(server, reader);
  }
  await agree(server, reader);
  // Chance may have brought none of these: a put, a delete, and changes forgotten during a cut.
  server.nodes.create("put");
  await agree(server, reader);
  server.nodes.delete("put");
  await agree(server, reader);
  server.cut();
  server.nodes.create("missed");
  server.nodes.compact();
  await agree(server, reader);
  t.true(reader.kinds.filter((kind) => kind === "snapshot").length > 1);
  t.true(reader.kinds.includes("put") && reader.kinds.includes("delete"));
});

test("a follower whose server was restored from an older copy lists again", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("a");
  await using reader = new Reader(server);
  await agree(server, reader);
  server.nodes.restore();
  server.cut();
  server.nodes.create("b");
  await agree(server, reader);
  t.deepEqual([...reader.versions.keys()].toSorted(), ["a", "b"]);
});

test("a follower whose token expires reports it, and goes on with the next one", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("a");
  let token = "token-1";
  await using reader = new Reader(server, () => token);
  await agree(server, reader);
  await until("the watch", () => server.watching === 1);
  server.accounts.clear();
  // A watch is authenticated when it begins, so that nothing happens before the next one.
  server.nodes.create("b");
  await agree(server, reader);
  server.endWatches();
  await until("the refusal", () => reader.stale === "KUBERNETES_DENIED");
  server.nodes.create("c");
  token = "token-2";
  server.accounts.set(token, { user: "podnetd", rights: allRights });
  await agree(server, reader);
  t.is(reader.kinds.filter((kind) => kind === "snapshot").length, 1);
});

for (const [what, line] of [
  ["is no JSON", "{"],
  ["is no event", '{"type":"OTHER"}'],
  ["has no object", '{"type":"ADDED"}'],
  ["has no version", '{"type":"MODIFIED","object":{"metadata":{"name":"a","uid":"u"}}}'],
  ["reports an error", '{"type":"ERROR","object":{"code":500,"message":"etcd is away"}}'],
] as const)
  test(`a follower lists again after a line that ${what}`, async (t) => {
    await using server = await KubeApiServer.open();
    server.nodes.create("a");
    await using reader = new Reader(server);
    await agree(server, reader);
    await until("the watch", () => server.watching === 1);
    server.say(`${line}\n`);
    await until("the second list", () => reader.kinds.filter((k) => k === "snapshot").length === 2);
    t.true(reader.kinds.includes("stale"));
    server.nodes.create("b");
    await agree(server, reader);
  });
