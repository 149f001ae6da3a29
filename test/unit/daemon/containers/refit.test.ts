import test from "ava";
import type { AttachmentPlan } from "../../../../daemon/containers/attachment-plan.ts";
import { refitted } from "../../../../daemon/containers/refit.ts";

const plan = (more: Partial<AttachmentPlan> = {}): AttachmentPlan =>
  ({ mtu: 1500, fragment: { isolated: false, mtu: 1500 }, ...more }) as unknown as AttachmentPlan;
const usual = { mtu: undefined };
const network = { isolated: false, mtu: 1500 };

test("a container follows its network's isolation, and its MTU where it asked for none", (t) => {
  t.is(refitted(plan(), network, usual), undefined);
  t.like(refitted(plan(), { ...network, isolated: true }, usual), { fragment: { isolated: true } });
  const follows = plan({ mtuOfNetwork: true });
  t.like(refitted(follows, { ...network, mtu: 1400 }, usual), {
    mtu: 1400,
    fragment: { mtu: 1400 },
  });
  t.is(refitted(follows, { ...network, mtu: 9000 }, { mtu: 1500 }), undefined);
  // Asked for, or planned by a podnetd that did not note whether it was.
  t.is(refitted(plan(), { ...network, mtu: 9000 }, usual), undefined);
});
