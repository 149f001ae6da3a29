import test from "ava";
import { Patience } from "../../daemon/drift/patience.ts";

const mtu = [{ subject: "link hyper0 mtu", found: "1400", wanted: "1500" }];
const rules = [{ subject: "iptables-nft nat", found: "absent", wanted: "-A" }];

test("what is changed now and then is repaired at once, for ever", (t) => {
  const patience = new Patience();
  for (let now = 0; now < 3_600_000; now += 15_000) {
    t.true(patience.allows(mtu, now));
    t.is(patience.repaired(mtu, now), 0);
  }
});

test("what keeps being undone is repaired less and less often, but it is", (t) => {
  const patience = new Patience();
  let repairs = 0;
  const pauses: number[] = [];
  for (let now = 0; now < 3_600_000; now += 100) {
    if (!patience.allows(mtu, now)) continue;
    repairs++;
    const pause = patience.repaired(mtu, now);
    if (pause > 0) pauses.push(pause / 1000);
  }
  t.deepEqual(pauses.slice(0, 7), [10, 20, 40, 80, 160, 300, 300]);
  t.true(repairs < 5 + 5 + 3600 / 300 + 1, `${repairs} repairs in an hour`);
});

test("something else is repaired meanwhile, and so is all when it has been calm", (t) => {
  const patience = new Patience();
  for (let now = 0; now < 600; now += 100) patience.repaired(mtu, now);
  t.false(patience.allows(mtu, 1000));
  t.true(patience.allows([...mtu, ...rules], 1000));
  t.is(patience.repaired(rules, 1000), 0);
  t.true(patience.allows(mtu, 11_000));
  t.is(patience.repaired(mtu, 200_000), 0);
});
