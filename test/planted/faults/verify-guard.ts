import type { Fault } from "../fault.ts";

const kernel = "test/kernel/verify-guard.test.ts";
const named = "what others change of the guard and of policies is named (nftables)";

/** What `podnet verify` would pass over in the guard, in policies and in limits. */
export const verifyGuardFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "verify takes a chain without rules for a policy",
    file: "daemon/verify/compare-guard.ts",
    find: "holder !== undefined && holder.rules > 0 && directions.includes(direction)",
    put: "holder !== undefined && directions.includes(direction)",
    noticedBy: { file: kernel, title: named },
  },
  {
    kind: "access",
    name: "verify takes the guard's elements for a guard that no frame comes by",
    file: "daemon/verify/rules-source-guard.ts",
    find: 'asked: metAt(guard, "prerouting").some((rule) => rule.includes(\'"@macs"\')),',
    put: "asked: guard.sets.length > 0,",
    noticedBy: { file: kernel, title: named },
  },
  {
    kind: "bound",
    name: "verify does not miss the redirect of what a guest sends",
    file: "daemon/verify/compare-limits.ts",
    find: "check(`frames out of ${tap} go by`, fromGuest === undefined ? undefined : ifb, led),",
    put: "check(`frames out of ${tap} go by`, led, led),",
    noticedBy: { file: kernel, title: "the queues of limits are read as the kernel has them" },
  },
];
