import type { Fault } from "../fault.ts";

const pods = "test/unit/daemon/pods/pods.test.ts";
const recover = "test/unit/daemon/pods/recover.test.ts";

/**
 * What a podnetd that was killed has left: taken over or undone, and nothing of others' touched.
 */
export const recoveryFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "all pods are taken over at once",
    file: "daemon/pods/lifecycle/recover.ts",
    find: "const together = 16;",
    put: "const together = 1000;",
    noticedBy: { file: pods, title: "pods are taken over sixteen at a time at most" },
  },
  {
    kind: "undo",
    name: "a start looks for no remains of a stopped pod with a recorded run",
    file: "daemon/pods/lifecycle/recover.ts",
    find: "      !withRun.has(id) &&\n",
    put: "",
    noticedBy: {
      file: recover,
      title: "a stopped pod with a recorded run is looked for whatever a look at all says",
    },
  },
  {
    kind: "repair",
    name: "a start leaves all ports as they are when it cannot look at them together",
    file: "daemon/pods/lifecycle/recover.ts",
    find: "  let others = adopted;",
    put: "  let others: readonly Adopted[] = [];",
    noticedBy: {
      file: recover,
      title:
        "only ports that are not as planned are written at a start, all if no look is possible",
    },
  },
  {
    kind: "repair",
    name: "a pod whose recovery fails is not tried again",
    file: "daemon/pods/lifecycle/recover.ts",
    find: "keepTrying(row, what, thrown, recovery, (now) => recoverPod(now, later, reattachMs.again));",
    put: "",
    noticedBy: {
      file: pods,
      title:
        "a machine that cannot be reached yet is tried again, and not called failed while it may run",
    },
  },
  {
    kind: "undo",
    name: "what is left of a delete is let go of when its recovery fails",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: "if (failures.length > 0) throw failures[0];",
    put: "void failures;",
    noticedBy: {
      file: pods,
      title:
        "a delete that cannot be finished after a restart is tried again until nothing is left",
    },
  },
  {
    kind: "undo",
    name: "a create that was cut short is not undone at the next start",
    file: "daemon/pods/lifecycle/recover.ts",
    find: 'case "creating":\n      await takeDown(row, recovery);',
    put: 'case "creating":',
    noticedBy: { file: pods, title: "a create that was cut short is undone at the next start" },
  },
  {
    kind: "undo",
    name: "what a machine without a row has left stays",
    file: "daemon/pods/lifecycle/recover.ts",
    find: "await removeLeft(known, recovery);",
    put: "",
    noticedBy: {
      file: pods,
      title:
        "a machine that runs without a row is evidence of a lost one: it refuses the start, and nothing ends it",
    },
  },
  {
    kind: "repair",
    name: "a machine that runs without a row is ended",
    file: "daemon/pods/lifecycle/orphans.ts",
    find: "found.pid !== undefined && !found.rowless && found.kept?.left !== true;",
    put: "found.pid === -1;",
    noticedBy: {
      file: pods,
      title:
        "a machine that runs without a row is evidence of a lost one: it refuses the start, and nothing ends it",
    },
  },
  {
    kind: "record",
    name: "the plan of a pod is not kept alongside its row",
    file: "daemon/pods/store/records.ts",
    find: "this.#keep({ plan, spec });",
    put: "",
    noticedBy: {
      file: pods,
      title: "a pod that runs is kept alongside its row as it is now, until it is gone",
    },
  },
  {
    kind: "mark",
    name: "a process is known by its pid alone",
    file: "linux/processes/proc.ts",
    find: "if (fields === undefined || fields[19] !== startTime) return false;",
    put: "void startTime;\n  if (fields === undefined) return false;",
    noticedBy: {
      file: "test/unit/linux/processes/proc.test.ts",
      title: "a process is identified by pid and start time",
    },
  },
  {
    kind: "record",
    name: "a call of the host's lies outside of an effect",
    file: "daemon/store/lock.ts",
    find: 'perform("file", `make ${name}`, () => mkdirSync(directory, { recursive: true, mode: 0o700 }));',
    put: "mkdirSync(directory, { recursive: true, mode: 0o700 });",
    noticedBy: {
      file: "test/crash/strace.test.ts",
      title: "strace shows no call of podnetd outside of an effect, with stand-in machines",
    },
    slow: true,
  },
];
