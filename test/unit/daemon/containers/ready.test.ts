import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { attachmentFragment } from "../../../../daemon/containers/attachment-fragment.ts";
import { awaitingPlugins } from "../../../../daemon/containers/attachment-plan.ts";
import { ReadyAttachments } from "../../../../daemon/containers/ready.ts";
import { KeyedLock } from "../../../../daemon/reconcile/keyed-lock.ts";
import { openLog } from "../../../../linux/log.ts";
import { nothingFound } from "../../../../network/bridge/inspect.ts";
import type { AttachmentFragment } from "../../../../network/containers/desired.ts";
import { network, planned } from "./fixtures/planned.ts";

const { signal } = new AbortController();
const look = { inside: true, linksOnly: false, heal: () => true };

/** A container that waits for later plugins, on a host that fails as asked. */
function opened() {
  const plan = awaitingPlugins(planned({}));
  const host = { fails: false, guarded: [] as (AttachmentFragment | undefined)[], completed: 0 };
  const ready = new ReadyAttachments({
    network: {
      inspect: async () => nothingFound,
      observeLater: async () => ({ left: ["mtu"] }),
      async guard(now) {
        if (host.fails) throw new PodnetError("NETLINK_FAILED", "not now");
        host.guarded.push(now());
      },
    },
    published: { missing: () => undefined, retry: async () => {} },
    records: { note: () => {}, completed: () => host.completed++ },
    names: { enter: () => {}, leave: () => {} },
    clock: { monotonic: () => 0 },
    locks: new KeyedLock(),
    fragmentOf: (each) => attachmentFragment(each, [network], { mtu: undefined }),
    log: openLog({ component: "test", level: "silent" }),
  });
  ready.enter(plan);
  return { id: plan.id, host, ready };
}

test("a port whose rules cannot be fixed when later plugins are done gets them at the next look", async (t) => {
  const { id, host, ready } = opened();
  host.fails = true;
  await ready.complete(id, signal, true);
  t.is(host.completed, 1);
  t.deepEqual(host.guarded, []);
  host.fails = false;
  await ready.inspect(id, look, signal);
  t.is(host.guarded.length, 1);
  t.false("awaitsPlugins" in (host.guarded[0] as AttachmentFragment));
  await ready.inspect(id, look, signal);
  t.deepEqual([host.guarded.length, host.completed], [1, 1], "once");
});

test("a container keeps its lenient rules until later plugins are done", async (t) => {
  const { id, host, ready } = opened();
  await ready.complete(id, signal);
  t.deepEqual([host.guarded.length, host.completed], [0, 0]);
  t.true(ready.fragment(id)?.awaitsPlugins);
});
