import test from "ava";
import { isPodnetError, type PodnetError } from "../../../core/errors.ts";
import type { Listed } from "../../../kubernetes/client.ts";
import { kubernetesError } from "../../../kubernetes/errors.ts";
import { follow, type Followable, type Followed } from "../../../kubernetes/follow.ts";
import { KubeApiServer } from "../../peers/kube-api/server.ts";
import { clientOf, never, nodesPath } from "./fixtures.ts";

// API servers that are busy, and say when to come again.

const status = (code: number, seconds: number) =>
  JSON.stringify({
    kind: "Status",
    code,
    message: "busy",
    details: { retryAfterSeconds: seconds },
  });

test("when to come again is read from the header and from the status, within bounds", async (t) => {
  await using server = await KubeApiServer.open();
  server.nodes.create("a");
  const client = clientOf(server);
  for (const [code, body, header, ms] of [
    [429, "", "7", 7000],
    [503, status(503, 9), "", 9000],
    [500, status(500, 2), "3", 3000],
    [429, "", "86400", 300_000],
    [429, "", "-5", undefined],
    [429, "", "Fri, 31 Dec 2199 23:59:59 GMT", undefined],
    [429, status(429, 1e300), "", 300_000],
    [503, "", "", undefined],
  ] as const) {
    server.answerNext(code, body, header === "" ? {} : { "retry-after": header });
    const error = await t.throwsAsync(client.list(nodesPath, "list nodes", never));
    t.is((error as PodnetError).details["retryAfterMs"], ms, `${code} ${header} ${body}`);
  }
});

/** Follows a client that answers as it is given, until it was asked so often. */
async function followed(
  times: number,
  answer: () => Promise<Listed>,
): Promise<{ readonly pauses: readonly number[]; readonly items: readonly Followed[] }> {
  const over = new AbortController();
  const pauses: number[] = [];
  const items: Followed[] = [];
  const client: Followable = {
    list: answer,
    async *watch() {
      await Promise.resolve();
      yield { kind: "open" };
      throw kubernetesError("KUBERNETES_EXPIRED", "gone");
    },
  };
  const options = {
    signal: over.signal,
    what: "nodes",
    random: () => 0,
    pause: (ms: number) => {
      pauses.push(ms);
      if (pauses.length >= times) over.abort();
      return Promise.resolve();
    },
  };
  for await (const each of follow(client, nodesPath, options)) items.push(each);
  return { pauses, items };
}

test("a follower comes no sooner than it was asked to", async (t) => {
  const { pauses } = await followed(3, () =>
    Promise.reject(
      kubernetesError("KUBERNETES_UNREACHABLE", "busy", { details: { retryAfterMs: 20_000 } }),
    ),
  );
  t.is(pauses.length, 3);
  t.true(
    pauses.every((ms) => ms >= 20_000),
    String(pauses),
  );
});

test("a list whose parts are always gone is reported, and what a watch has lost is not", async (t) => {
  const lost = await followed(2, () =>
    Promise.reject(kubernetesError("KUBERNETES_EXPIRED", "The provided continue is too old")),
  );
  t.deepEqual(
    lost.items.map(({ kind }) => kind),
    ["stale"],
  );
  const [stale] = lost.items;
  t.true(stale?.kind === "stale" && isPodnetError(stale.reason, "KUBERNETES_EXPIRED"));
  const { items } = await followed(2, () => Promise.resolve({ resourceVersion: "7", items: [] }));
  t.deepEqual(
    items.map(({ kind }) => kind),
    ["snapshot", "snapshot"],
  );
});

test("a list or an object without a version is not taken for one", async (t) => {
  // A watch from an empty version begins with what there is then, and misses what was before.
  await using server = await KubeApiServer.open();
  const client = clientOf(server);
  for (const body of [
    { metadata: { resourceVersion: "" }, items: [] },
    {
      metadata: { resourceVersion: "1" },
      items: [{ metadata: { name: "a", uid: "", resourceVersion: "1" } }],
    },
    {
      metadata: { resourceVersion: "1" },
      items: [{ metadata: { name: "a", uid: "u", resourceVersion: "" } }],
    },
  ]) {
    server.answerNext(200, JSON.stringify(body));
    await t.throwsAsync(client.list(nodesPath, "list nodes", never), {
      code: "KUBERNETES_FAILED",
    });
  }
});
