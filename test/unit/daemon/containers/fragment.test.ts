import test from "ava";
import { attachmentFragment } from "../../../../daemon/containers/attachment-fragment.ts";
import {
  type AttachmentPlan,
  awaitingPlugins,
} from "../../../../daemon/containers/attachment-plan.ts";
import type { AttachmentFragment } from "../../../../network/containers/desired.ts";
import { network, planned } from "./fixtures/planned.ts";

const usual = { mtu: undefined };
const on = (
  plan: AttachmentPlan,
  change: Partial<typeof network>,
  settings: { readonly mtu: number | undefined } = usual,
): AttachmentFragment => attachmentFragment(plan, [{ ...network, ...change }], settings);

test("a container follows its network's isolation, and its MTU where it asked for none", (t) => {
  const follows = planned({});
  t.like(on(follows, {}), { isolated: false, mtu: 1450 });
  t.like(on(follows, { isolated: true, mtu: 1400 }), { isolated: true, mtu: 1400 });
  t.is(on(follows, { mtu: 9000 }, { mtu: 1450 }).mtu, 1450);
  const asked = planned({ asked: { mtu: 1300 } });
  t.is(on(asked, { mtu: 9000 }).mtu, 1300);
});

test("a container whose MTU its network has changed since ADD waits for later plugins no more", (t) => {
  const plan = awaitingPlugins(planned({}));
  t.true(on(plan, { isolated: true }).awaitsPlugins);
  t.false("awaitsPlugins" in on(plan, { mtu: 1400 }));
});

test("a container whose network is gone can be removed", (t) => {
  const { hostLink, alias, mtu } = on(planned({}), {});
  t.like(attachmentFragment(planned({}), [], usual), { hostLink, alias, mtu, isolated: false });
});
