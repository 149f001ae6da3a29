import type { Fault } from "../fault.ts";

const unit = "test/unit/policy/effects.test.ts";

/** What the plan of a policy's delete would keep from people. */
export const policyEffectsFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "a plan of a policy's delete does not say that its default goes",
    file: "policy/effects.ts",
    find: "if (otherwise.policy === policy && otherwise.verdict !== verdict)",
    put: "if (otherwise.policy === policy && otherwise.verdict === verdict)",
    noticedBy: {
      file: unit,
      title: "without its only policy a pod may do all that the policy denied",
    },
  },
  {
    kind: "access",
    name: "a plan of a policy's delete does not say that other DNS servers open",
    file: "policy/effects.ts",
    find: "(nameFloor.includes(entry.rule) && !stays(entry))",
    put: "(nameFloor.includes(entry.rule) && stays(entry))",
    noticedBy: {
      file: unit,
      title: "what one policy allows closes where another one denies by default",
    },
  },
];
