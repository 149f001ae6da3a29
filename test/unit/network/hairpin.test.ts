import test from "ava";
import type { Ip } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import { diffHairpin, servedOtherwise } from "../../../network/bridge/hairpin.ts";
import type { ObservedLink, ObservedPod } from "../../../network/model/observed.ts";
import { dualPod, podAddress, published } from "../../lab/firewall-site.ts";

const web = [published(2, 4, { hostPort: 8080, podPort: 80 })];
const port = (hairpin: boolean | undefined): ObservedPod =>
  new Map([["tap2" as IfName, { name: "tap2", hairpin } as unknown as ObservedLink]]);

test("A port reflects frames only where they pass the rules of what its pod has published, and never when isolated", (t) => {
  const none = new Set<Ip>();
  const onBridge = (of: readonly (4 | 6)[]) => (family: 4 | 6) => of.includes(family);
  const on = [{ kind: "set-port", link: "tap2", set: { hairpin: true } }];
  const off = [{ kind: "set-port", link: "tap2", set: { hairpin: false } }];
  t.deepEqual(diffHairpin(dualPod(2, web), port(false), onBridge([4]), none), on);
  t.deepEqual(diffHairpin(dualPod(2, web), port(undefined), onBridge([4, 6]), none), on);
  t.deepEqual(diffHairpin(dualPod(2, web), port(true), onBridge([4]), none), []);
  t.deepEqual(
    diffHairpin(dualPod(2, web), port(false), onBridge([6]), none),
    [],
    "of the other family",
  );
  t.deepEqual(diffHairpin(dualPod(2, web), port(true), onBridge([]), none), off);
  t.deepEqual(diffHairpin(dualPod(2, []), port(true), onBridge([4, 6]), none), off);
  t.deepEqual(
    diffHairpin(dualPod(2, web, { isolated: true }), port(true), onBridge([4]), none),
    off,
  );
  const others = [published(3, 4, { hostPort: 8080, podPort: 80 })];
  t.deepEqual(
    diffHairpin(dualPod(2, others), port(false), onBridge([4]), none),
    [],
    "another address",
  );
});

test("A port reflects frames where services lead to its pod, and stays as it is until they are known", (t) => {
  const onBridge = (family: 4 | 6): boolean => family === 4;
  const on = [{ kind: "set-port", link: "tap2", set: { hairpin: true } }];
  const off = [{ kind: "set-port", link: "tap2", set: { hairpin: false } }];
  const served = (...addresses: string[]): ReadonlySet<Ip> => new Set(addresses as Ip[]);
  const [mine, mine6, other] = [podAddress(2, 4), podAddress(2, 6), podAddress(3, 4)];
  const diff = (hairpin: boolean, by: ReadonlySet<Ip> | undefined): unknown =>
    diffHairpin(dualPod(2), port(hairpin), onBridge, by);
  t.deepEqual(diff(false, served(mine)), on);
  t.deepEqual(diff(true, served(mine)), []);
  t.deepEqual(diff(false, served(mine6)), [], "frames of this family do not pass");
  t.deepEqual(diff(true, served(other)), off);
  t.deepEqual(diff(true, undefined), []);
  t.deepEqual(diff(false, undefined), []);
  t.deepEqual(diffHairpin(dualPod(2, web), port(false), onBridge, undefined), on, "published");

  const isOther = (before: ReadonlySet<Ip> | undefined, after: ReadonlySet<Ip>): boolean =>
    servedOtherwise(dualPod(2), before, after);
  t.true(isOther(served(), served(mine6)));
  t.true(isOther(served(mine, other), served(other)));
  t.false(isOther(served(mine), served(mine, other)));
  t.true(isOther(undefined, served()), "all are looked at first");
});
