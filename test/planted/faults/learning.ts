import type { Fault } from "../fault.ts";

const learn = "test/kernel/policy-learn.test.ts";

/** What a pod uses, as podnetd learns it. */
export const learningFaults: readonly Fault[] = [
  {
    kind: "release",
    name: "what notes connections stays when whoever learns has gone",
    file: "daemon/policies/learning.ts",
    find: 'await this.#queue.run("end", () => this.#end()).catch(() => {});',
    put: "",
    noticedBy: {
      file: learn,
      title: "learning ends with its time, its pod and its caller; one pod at a time",
    },
  },
  {
    kind: "repair",
    name: "what another program takes of learning stays away",
    file: "daemon/policies/learning.ts",
    find: "if (!isOver) await this.#set(fragment);",
    put: "if (isOver) await this.#set(fragment);",
    shows: "hang",
    noticedBy: {
      file: learn,
      title: "learning goes on after another program has removed its rules",
    },
  },
  {
    kind: "release",
    name: "what a killed learner left stays after the next start",
    file: "network/bridge/removal.ts",
    find: "return [links, rules, learning, view.formerRules];",
    put: "void learning;\n  return [links, rules, view.formerRules];",
    noticedBy: {
      file: learn,
      title: "what a podnetd that was killed left is an orphan at the next start",
    },
  },
  {
    kind: "mark",
    name: "whoever resolves a name is learned from",
    file: "daemon/policies/learning.ts",
    find: "if (own !== holder ||",
    put: "if (own === undefined ||",
    noticedBy: {
      file: learn,
      title: "a policy has what its pod used, and nothing of others (nftables)",
    },
  },
];
