import test from "ava";
import { parseIp } from "../../../core/address.ts";
import { canonicalName } from "../../../policy/domain.ts";
import type { RelayVerdict } from "../../../relay/messages.ts";
import { Verdicts } from "../../../relay/verdicts.ts";

const verdict = (pod: string, n = 0): Omit<RelayVerdict, "count"> => ({
  pod,
  verdict: "deny",
  policy: "p",
  rule: "default",
  reason: "no rule allows it",
  name: canonicalName(`n${n}.example`) ?? null,
  to: { ip: parseIp("203.0.113.1"), port: 443 },
});

test("verdicts are sent at once up to a rate, then as counts, and none is lost", (t) => {
  const clock = { time: 0 };
  const sent: RelayVerdict[] = [];
  let takes = true;
  const verdicts = new Verdicts({ now: () => clock.time, monotonic: () => clock.time }, (one) => {
    if (takes) sent.push(one);
    return takes;
  });
  const counted = (pod: string): number =>
    sent.filter((one) => one.pod === pod).reduce((sum, { count }) => sum + count, 0);
  for (let i = 0; i < 10_000; i++) verdicts.add(verdict("busy", i % 3));
  verdicts.add(verdict("quiet"));
  t.is(sent.length, 21, "a busy pod does not take a quiet one's turn");
  for (let second = 1; second <= 3; second++) {
    clock.time = second * 1000;
    verdicts.flush();
  }
  t.is(counted("busy"), 10_000);
  t.is(sent.length, 24);
  // More kinds than are told apart: the others are counted without name and destination.
  takes = false;
  for (let i = 0; i < 1000; i++) verdicts.add(verdict("many", i));
  takes = true;
  for (let second = 4; second <= 60; second++) {
    clock.time = second * 1000;
    verdicts.flush();
  }
  t.is(counted("many"), 1000);
  const many = sent.filter(({ pod }) => pod === "many");
  t.is(many.length, 201);
  t.deepEqual(
    many.filter(({ name }) => name === null).map(({ to, count }) => [to, count]),
    [[undefined, 800]],
  );
});
