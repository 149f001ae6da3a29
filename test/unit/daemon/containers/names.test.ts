import test from "ava";
import type { Ip, IpPrefix } from "../../../../core/address.ts";
import { systemClock } from "../../../../core/clock.ts";
import type { NetworkName } from "../../../../core/names.ts";
import type { AttachmentPlan } from "../../../../daemon/containers/attachment-plan.ts";
import { ContainerNames } from "../../../../daemon/containers/container-names.ts";
import { ReadyAttachments } from "../../../../daemon/containers/ready.ts";
import { KeyedLock } from "../../../../daemon/reconcile/keyed-lock.ts";
import { openLog } from "../../../../linux/log.ts";

const blue = "blue" as NetworkName;
const red = "red" as NetworkName;

const planOf = (n: number, names: readonly string[]): AttachmentPlan =>
  ({
    id: `c${n}`,
    network: blue,
    names,
    addresses: [`10.0.0.${n}/24` as IpPrefix, `fd00::${n}/64` as IpPrefix],
  }) as unknown as AttachmentPlan;

test("names of a container are known while it is ready, and by its network alone", (t) => {
  const names = new ContainerNames();
  const ready = new ReadyAttachments({
    network: {} as never,
    published: { missing: () => undefined } as never,
    records: {} as never,
    names,
    clock: systemClock,
    locks: new KeyedLock<string>(),
    fragmentOf: () => ({}) as never,
    log: openLog({ component: "cni", level: "silent" }),
  });
  const [one, two] = [planOf(2, ["db", "primary"]), planOf(3, ["db"])];
  ready.enter(one);
  ready.enter(two);
  const all = ["10.0.0.2", "fd00::2", "10.0.0.3", "fd00::3"] as Ip[];
  t.deepEqual(names.addressesOf(blue, "db"), all, "both have the name");
  t.deepEqual(names.addressesOf(blue, "primary"), all.slice(0, 2));
  t.is(names.addressesOf(red, "db"), undefined);
  t.is(names.nameAt(blue, "fd00::2" as Ip), "db");
  t.is(names.nameAt(red, "fd00::2" as Ip), undefined);
  // By another plan than before.
  ready.enter(planOf(2, ["other"]));
  t.deepEqual(names.addressesOf(blue, "db"), all.slice(2));
  t.deepEqual(names.addressesOf(blue, "other"), all.slice(0, 2));
  ready.leave(two.id);
  ready.leave(two.id);
  t.is(names.addressesOf(blue, "db"), undefined);
  t.is(names.nameAt(blue, "10.0.0.3" as Ip), undefined);
});
