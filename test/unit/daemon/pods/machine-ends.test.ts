import { mkdirSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import type { PodRow } from "../../../../daemon/pods/store/pod-row.ts";
import { configuration, type Node, openNode } from "../fixtures/node.ts";
import { until } from "../../../lab/until.ts";

const becomes = (node: Node, as: (pod: PodRow) => boolean): Promise<boolean> =>
  until(
    "a pod to become so",
    () => node.pods.list().some(as),
    undefined,
    () => JSON.stringify(node.pods.list()),
  );

test("what a machine that ended held is freed however often it takes, and its pod says so meanwhile", async (t) => {
  using node = openNode(configuration({}));
  const { id } = await node.create();
  node.failing.add("remove");
  node.pods.live(id)?.ended.abort(new PodnetError("QEMU_EXITED", "it is gone"));
  await becomes(
    node,
    ({ state, reason }) => state === "failed" && /cannot be freed: remove fails/.test(reason ?? ""),
  );
  node.failing.clear();
  node.calls.length = 0;
  await becomes(node, ({ reason }) => reason === "it is gone");
  t.deepEqual(node.calls.slice(-2), ["reap", "remove"]);
  t.like(node.pods.list()[0], { state: "failed", failure: { code: "QEMU_EXITED" } });
  await node.pods.close(0);
});

test("a machine without a row whose end fails at the start is ended later", async (t) => {
  const config = configuration({});
  mkdirSync(join(config.podsDir, "abcdefghijkl"), { recursive: true });
  using node = openNode(config);
  node.failing.add("reap");
  await node.pods.recover("b");
  t.deepEqual(node.calls, ["reap"]);
  node.failing.clear();
  await until("a second call", () => node.calls.length >= 2);
  t.deepEqual(node.calls, ["reap", "reap"]);
  await node.pods.close(0);
});
