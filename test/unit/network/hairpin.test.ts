import test from "ava";
import type { IfName } from "../../../core/names.ts";
import { diffHairpin } from "../../../network/bridge/hairpin.ts";
import type { ObservedLink, ObservedPod } from "../../../network/model/observed.ts";
import { dualPod, published } from "../../lab/firewall-site.ts";

const web = [published(2, 4, { hostPort: 8080, podPort: 80 })];
const port = (hairpin: boolean | undefined): ObservedPod =>
  new Map([["tap2" as IfName, { name: "tap2", hairpin } as unknown as ObservedLink]]);

test("A port reflects frames only where they pass the rules of what its pod has published, and never when isolated", (t) => {
  const onBridge = (of: readonly (4 | 6)[]) => (family: 4 | 6) => of.includes(family);
  const on = [{ kind: "set-port", link: "tap2", set: { hairpin: true } }];
  const off = [{ kind: "set-port", link: "tap2", set: { hairpin: false } }];
  t.deepEqual(diffHairpin(dualPod(2, web), port(false), onBridge([4])), on);
  t.deepEqual(diffHairpin(dualPod(2, web), port(undefined), onBridge([4, 6])), on);
  t.deepEqual(diffHairpin(dualPod(2, web), port(true), onBridge([4])), []);
  t.deepEqual(diffHairpin(dualPod(2, web), port(false), onBridge([6])), [], "of the other family");
  t.deepEqual(diffHairpin(dualPod(2, web), port(true), onBridge([])), off);
  t.deepEqual(diffHairpin(dualPod(2, []), port(true), onBridge([4, 6])), off);
  t.deepEqual(diffHairpin(dualPod(2, web, { isolated: true }), port(true), onBridge([4])), off);
  const others = [published(3, 4, { hostPort: 8080, podPort: 80 })];
  t.deepEqual(diffHairpin(dualPod(2, others), port(false), onBridge([4])), [], "another address");
});
