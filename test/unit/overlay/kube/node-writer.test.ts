import test from "ava";
import { kubernetesError } from "../../../../kubernetes/errors.ts";
import { NodeWriter, wantedOf } from "../../../../overlay/kube/node-writer.ts";
import { annotationsOf, config, hostOf, nodeOf } from "./fixtures.ts";

const intended = {
  leaving: true,
  hasLeft: false,
  has: undefined,
  host: hostOf(1),
  config,
  isReady: true,
  writesCondition: true,
};

test("a host that has left wants nothing of its Node any more", (t) => {
  const own = nodeOf(1);
  t.like(wantedOf(own, intended), { kind: "write", unavailable: true });
  // Annotations with this MAC, too: of a flanneld that has adopted podnet's tunnel.
  t.is(wantedOf(own, { ...intended, hasLeft: true }), undefined);
  const data = JSON.stringify({ VNI: 1, VtepMAC: "02:00:00:00:f1:f1" });
  const theirs = nodeOf(1, { annotations: { ...annotationsOf(1), "backend-data": data } });
  t.is(wantedOf(theirs, intended), undefined);
});

test("a writer waits as long as a busy API server wants", async (t) => {
  let now = 0;
  let calls = 0;
  const changed: (() => void)[] = [];
  await using writer = new NodeWriter({
    store: {
      read: () => Promise.resolve(undefined),
      patch: () => {
        calls++;
        const details = { retryAfterMs: 60_000 };
        return Promise.reject(kubernetesError("KUBERNETES_UNREACHABLE", "busy", { details }));
      },
    },
    clock: { now: () => now, monotonic: () => now },
    prefix: "p",
    node: () => nodeOf(1),
    wanted: () => ({ kind: "write", annotations: {}, unavailable: undefined }),
    onRead: () => {},
    onChange: () => changed.shift()?.(),
  });
  const attempt = async (): Promise<void> => {
    const over = new Promise<void>((resolve) => changed.push(resolve));
    writer.wake();
    await over;
  };
  await attempt();
  t.is(calls, 1);
  now += 60_000;
  writer.wake();
  t.is(calls, 1, "its own pause comes after");
  now += 1000;
  await attempt();
  t.is(calls, 2);
});
