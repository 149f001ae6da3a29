import test from "ava";
import { parseIp } from "../../../../core/address.ts";
import type { PodPlan } from "../../../../daemon/pods/store/pod-plan.ts";
import type { PublishedPlan } from "../../../../daemon/published/published-plan.ts";
import { verifyPod } from "../../../../daemon/verify/verify-pod.ts";

const published: PublishedPlan[] = [
  {
    protocol: "tcp",
    hostPort: 8080,
    podPort: 80,
    count: 1,
    at: [{ hostIp: parseIp("0.0.0.0"), podIp: parseIp("192.168.123.2") }],
  },
];
const plan = {
  podId: "abcdefghijkl",
  name: "web",
  vm: {},
  interfaces: [],
  published,
} as unknown as PodPlan;

test("a verify that is cancelled while rules are looked at rejects, and leaves no rejection behind", async (t) => {
  const caller = new AbortController();
  const { promise: neverKnown } = Promise.withResolvers<"off">();
  const result = verifyPod({ plan, vm: { socketPath: () => "/nowhere" } }, caller.signal, {
    networks: { fragments: [], definitions: [] },
    firewall: () => neverKnown,
    sandboxes: { check: () => Promise.resolve(true) },
  });
  caller.abort();
  // (A rejection that is handled by none fails the file.)
  await t.throwsAsync(result, { code: "CANCELLED" });
});
