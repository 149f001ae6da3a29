import type { Fault } from "../fault.ts";

const joining = "test/kernel/netns-join.test.ts";
const mending = "test/kernel/netns-join-drift.test.ts";
const planning = "test/unit/daemon/pods/plan-cni.test.ts";
const lives = "test/vm/standin-cni.test.ts";

/** Pods that take their network from CNI plugins. */
export const podsOnCniFaults: readonly Fault[] = [
  {
    kind: "repair",
    name: "a redirection that others have put another in place of stays lost",
    file: "network/rates/filters.ts",
    find: "if (first?.redirectsTo === to && others.length === 0) return [];",
    put: "if (first !== undefined && others.length === 0) return [];",
    noticedBy: {
      file: mending,
      title: "what others take of a join is put back; a look alone changes nothing",
    },
  },
  {
    kind: "undo",
    name: "undoing a second machine in a namespace ends the first one's part",
    file: "network/tc-redirect/redirect.ts",
    find: "if (link !== undefined && (await otherMachine(netlink, desired, link)) !== undefined) return;",
    put: "",
    noticedBy: {
      file: joining,
      title: "a second machine is refused a namespace, and takes nothing from the first",
    },
  },
  {
    kind: "lock",
    name: "a second machine takes the link of a namespace from the first",
    file: "network/tc-redirect/redirect.ts",
    find: "await refuseOthers(netlink, desired, link);",
    put: "",
    noticedBy: {
      file: joining,
      title: "a second machine is refused a namespace, and takes nothing from the first",
    },
  },
  {
    kind: "mark",
    name: "a link's default route stands alongside the pod's own",
    file: "daemon/pods/interfaces/plan-taken.ts",
    find: ".filter((route) => !has.has(placeOf(route)))",
    put: ".filter((route) => has.size >= 0 || placeOf(route))",
    noticedBy: { file: planning, title: "a pod's own routes and networks come first" },
  },
  {
    kind: "record",
    name: "what a link gave stays the pod's after it was given back",
    file: "daemon/pods/interfaces/plan-taken.ts",
    find: "({ taken: _gone, ...cni }) => cni",
    put: "(cni) => cni",
    noticedBy: {
      file: planning,
      title: "a guest learns what a link is, and nothing of it is left when it is forgotten",
    },
  },
  {
    kind: "lock",
    name: "DEL begins alongside a plugin that a killed podnetd left running",
    file: "daemon/pods/interfaces/plugin-calls.ts",
    find: "      await outlive(file);\n",
    put: "",
    noticedBy: {
      file: lives,
      title: "a plugin that a killed podnetd left running is ended before DEL",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "a namespace stays when its plugins have taken everything back",
    file: "daemon/pods/interfaces/sandboxes.ts",
    find: "await deleteList({ ...call, sandbox: there ? sandbox : without }, cni.sandbox.result);\n      removeNamespace(cni.netns);",
    put: "await deleteList({ ...call, sandbox: there ? sandbox : without }, cni.sandbox.result);",
    noticedBy: {
      file: lives,
      title: "a pod that is stopped gives its network back, and gets one when it starts",
    },
    slow: true,
  },
];
