import test from "ava";
import { policyTable } from "../../../../network/firewall/nftables/policy-table.ts";

test("what is logged of denied packets is bounded for each pod, and for each rule of it", (t) => {
  const logging = Object.values(policyTable.chains)
    .flatMap(({ rules }) => rules)
    .filter((rule) => rule.includes("log group"));
  t.is(logging.length, 4, "of both families and directions");
  for (const rule of logging) {
    // The count comes first, for a limit ends a rule.
    t.regex(
      rule,
      /^update @denied[46] \{ ip6? [sd]addr \. meta priority \. meta mark counter limit/,
    );
    t.regex(
      rule,
      / \} update @reported \{ meta priority limit rate 10\/second .* \} log group 73 /,
    );
  }
  const without = Object.values(policyTable.without?.table.chains ?? {}).flatMap(
    ({ rules }) => rules,
  );
  t.false(without.some((rule) => rule.includes("log") || rule.includes("limit")));
  t.is(without.filter((rule) => rule.startsWith("update @denied")).length, 4);
});
