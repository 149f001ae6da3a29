import type { Fault } from "../fault.ts";

/** What people type, and what the command shows them. */
export const commandLineFaults: readonly Fault[] = [
  {
    kind: "access",
    name: "the beginning of an id is enough to delete a pod",
    file: "daemon/pods/store/records.ts",
    find: "if (found === undefined || found.id === idOrName || found.name === idOrName) return found;",
    put: "if (found === undefined || found.id.startsWith(idOrName)) return found;",
    noticedBy: {
      file: "test/unit/daemon/pods/pods.test.ts",
      title: "the beginning of an id shows a pod, and does not stop, detach or delete it",
    },
  },
  {
    kind: "access",
    name: "podnet run leaves the pod's own rules out",
    file: "cli/flags/spec-flags.ts",
    find: "    spec.policy = rules ?? {};",
    put: "    if (rules === undefined) spec.policy = {};",
    noticedBy: {
      file: "test/unit/cli/given.test.ts",
      title: "run names its flags, and gives the pod its own policy",
    },
  },
  {
    kind: "escape",
    name: "a completion offers what a shell obeys",
    file: "cli/complete/completion.ts",
    find: "/^[\\w.:/@=+-]+$/.test(word)",
    put: 'word !== ""',
    noticedBy: {
      file: "test/unit/cli/complete.test.ts",
      title: "names come from podnetd, where they fit",
    },
  },
  {
    kind: "escape",
    name: "a template prints what steers a terminal",
    file: "cli/output.ts",
    find: "isTerminal ? harmless : undefined",
    put: "isTerminal ? String : undefined",
    noticedBy: {
      file: "test/unit/cli/jsonpath.test.ts",
      title: "every command that prints JSON takes a template, and a terminal is not steered",
    },
  },
  {
    kind: "record",
    name: "apply changes what it can although it refuses something",
    file: "cli/commands/apply/apply.ts",
    find: "if (refused > 0) throw refusal(refused, isDry",
    put: "if (refused > 9) throw refusal(refused, isDry",
    noticedBy: {
      file: "test/unit/cli/apply/apply.test.ts",
      title: "a program sees which changes are refused, and that nothing was changed",
    },
  },
];
