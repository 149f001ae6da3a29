import test from "ava";
import { isPodnetError, PodnetError } from "../../../../core/errors.ts";
import { withFirewall } from "../../../../daemon/main/firewall-choice.ts";
import { getMeta, setMeta } from "../../../../daemon/store/meta.ts";
import { configuration, openNode } from "../fixtures/node.ts";

/** A state, and starts of podnetd with it on a host that has these firewalls. */
function openState() {
  const node = openNode(configuration({}));
  const start = (has: readonly string[], setting: Record<string, string> = {}) =>
    withFirewall(configuration(setting), node.db, (firewall) => {
      if (!has.includes(firewall))
        throw new PodnetError("PREFLIGHT_FAILED", `${firewall} is missing`, { hint: "Install it" });
    }).firewall;
  return { node, start };
}

test("the first start takes iptables, else nftables, and later starts keep what it took", (t) => {
  for (const [first, chosen] of [
    [["iptables", "nftables"], "iptables"],
    [["nftables"], "nftables"],
    [["iptables"], "iptables"],
  ] as const) {
    const { node, start } = openState();
    using _node = node;
    t.is(start(first), chosen);
    t.is(getMeta(node.db, "firewall"), chosen);
    t.is(start(["iptables", "nftables"]), chosen, "whatever is installed later");
  }
});

test("a host without any is refused, and nothing is recorded", (t) => {
  const { node, start } = openState();
  using _node = node;
  t.true(
    isPodnetError(
      t.throws(() => start([])),
      "PREFLIGHT_FAILED",
    ),
  );
  t.is(getMeta(node.db, "firewall"), undefined);
  t.is(start([], { disable_iptables: "true" }), "auto", "none is needed then");
});

test("a choice whose program has gone is kept, and the error says how to change it", (t) => {
  const { node, start } = openState();
  using _node = node;
  t.is(start(["iptables"]), "iptables");
  const error = t.throws(() => start(["nftables"]), { instanceOf: PodnetError });
  t.is(error?.field, "firewall");
  t.regex(error?.message ?? "", /iptables is missing, and podnetd used it before/);
  t.regex(String(error?.hint), /^Install it\. To change to nftables, set firewall = "nftables"$/);
  t.is(start(["nftables"], { firewall: "nftables" }), "nftables");
  t.is(start(["iptables", "nftables"]), "nftables", "what the configuration said stays");
});

test("a state from before the record used iptables", (t) => {
  const { node, start } = openState();
  using _node = node;
  setMeta(node.db, "network_memory", "{}");
  t.is(start(["iptables", "nftables"]), "iptables");
  t.throws(() => openState().start([]));
});
