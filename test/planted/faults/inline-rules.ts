import type { Fault } from "../fault.ts";

const file = "test/unit/daemon/policies/inline-rules.test.ts";

/** Rules that pods and networks have of their own. */
export const inlineRulesFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "a pod without policies is not asked for its own rules",
    file: "daemon/policies/decisions.ts",
    find: 'decided.shared || (kind === "pod" && podHasRules(this.#db, key as PodId))',
    put: "decided.shared || podHasRules(this.#db, kind as PodId)",
    noticedBy: {
      file,
      title:
        "a pod's rules are its own: from its create to its end, changed meanwhile, after a restart",
    },
  },
  {
    kind: "access",
    name: "a pod's own rules come after those of its networks",
    file: "daemon/policies/decisions.ts",
    find: "const given = [own, ...networks].filter(",
    put: "const given = [...networks, own].filter(",
    noticedBy: {
      file,
      title: "a pod's rules come before those of its network, and these before policies",
    },
  },
  {
    kind: "access",
    name: "operators give pods rules of their own",
    file: "daemon/api/others-links.ts",
    find: 'if (policy !== undefined && values.get(callerKey)?.role !== "admin")',
    put: "if (policy !== undefined && values.get(callerKey) === undefined)",
    noticedBy: {
      file: "test/unit/daemon/api/others-links.test.ts",
      title: "rules of a pod's own are for administrators",
    },
  },
];
