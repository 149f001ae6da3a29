import test from "ava";
import { parseConfig } from "../../../overlay/flannel/config.ts";
import { chooseSubnets } from "../../../overlay/subnets.ts";

test("who has lost a race draws from more subnets, so that thousands who come at once find room", (t) => {
  const config = parseConfig('{"Network":"10.0.0.0/8"}');
  const last = (losses: number): string | undefined =>
    chooseSubnets({ config, previous: undefined, leases: [], draw: 0.999_99, losses })?.v4;
  t.is(last(0), "10.0.100.0/24");
  t.is(last(1), "10.3.32.0/24");
  t.is(last(2), "10.25.0.0/24");
  t.is(last(9), last(2));
});
