import test from "ava";
import { aroundGuard } from "../../../../network/bridge/compare-policed.ts";
import type { Change } from "../../../../network/model/change.ts";
import type { Element } from "../../../../network/model/nftables-sets.ts";

const of = (address: string, chain = "policy_1"): Element => ({
  set: "egress4",
  key: `"hyper0" . ${address}`,
  owner: "podnet:pod:a:0",
  value: `jump ${chain}`,
});
const edit = (fields: Partial<Extract<Change, { kind: "nftables" }>>): Change => ({
  kind: "nftables",
  table: "inet podnet_policy",
  base: "keep",
  remove: [],
  add: [],
  ...fields,
});
const guard = edit({ table: "bridge podnet", add: [of("10.9.0.14")] });

test("a policy gains a port's new address before the guard does, and loses the old one after it", (t) => {
  const changed = edit({ remove: [of("10.9.0.5")], add: [of("10.9.0.14")] });
  t.deepEqual(aroundGuard([changed], [guard]), [
    edit({ add: [of("10.9.0.14")] }),
    guard,
    edit({ remove: [of("10.9.0.5")] }),
  ]);
});

test("what leads elsewhere is replaced at once, and a chain goes with its last element", (t) => {
  const fill = [{ name: "policy_2", rules: ["drop"] }];
  const add = [of("10.9.0.5", "policy_2")];
  const replaced = edit({
    remove: [of("10.9.0.5"), of("10.9.0.6")],
    add,
    fill,
    drop: ["policy_1"],
  });
  t.deepEqual(aroundGuard([replaced], [guard]), [
    edit({ remove: [of("10.9.0.5")], add, fill }),
    guard,
    edit({ remove: [of("10.9.0.6")], drop: ["policy_1"] }),
  ]);
});

test("policies alone change in one transaction, and their end comes after the guard's change", (t) => {
  const changed = edit({ remove: [of("10.9.0.5")], add: [of("10.9.0.14")] });
  t.deepEqual(aroundGuard([changed], []), [changed]);
  const end = edit({ base: "delete" });
  t.deepEqual(aroundGuard([end], [guard]), [guard, end]);
  const anew = edit({ base: "remake", add: [of("10.9.0.14")] });
  t.deepEqual(aroundGuard([anew], [guard]), [anew, guard]);
});
