import type { Fault } from "../fault.ts";

const log = "test/unit/daemon/pods/process/process-log.test.ts";
const logFile = "daemon/pods/process/process-log.ts";
const plan = "test/unit/daemon/pods/process/plan-process.test.ts";
const lifetimes = "test/unit/daemon/pods/lifetime/lifetimes.test.ts";
const real = "test/vm/main-process.test.ts";

/** Main processes, what they write, and when pods end by themselves. */
export const mainProcessFaults: readonly Fault[] = [
  {
    kind: "record",
    name: "the next podnetd has the log of a main process begin anew",
    file: logFile,
    find: "this.#position = found.run === run ? found.at : 0;",
    put: "this.#position = 0;",
    noticedBy: {
      file: log,
      title: "the next podnetd goes on where the log ends, also behind half a line",
    },
  },
  {
    kind: "record",
    name: "half a line of a podnetd that was killed stays in the log",
    file: logFile,
    find: "if (found.size < fstatSync(this.#fd).size)",
    put: "if (found.size < 0)",
    noticedBy: {
      file: log,
      title: "the next podnetd goes on where the log ends, also behind half a line",
    },
  },
  {
    kind: "bound",
    name: "the log of a main process grows without end",
    file: logFile,
    find: "if (this.#size + bytes.length > fileBytes && this.#size > 0)",
    put: "if (this.#size + bytes.length > fileBytes && this.#size < 0)",
    noticedBy: { file: log, title: "a log has two files of bounded size, and its end is kept" },
  },
  {
    kind: "record",
    name: "output that a full disk did not take is not noticed in the log",
    file: logFile,
    find: "      this.#broken = true;\n",
    put: "",
    noticedBy: {
      file: log,
      title:
        "output that a full disk did not take is missing, and the next podnetd knows the position",
    },
  },
  {
    kind: "bound",
    name: "a restart policy starts a pod once more than it may",
    file: "daemon/pods/process/restart.ts",
    find: "before >= restart.max",
    put: "before > restart.max",
    noticedBy: {
      file: plan,
      title: "pauses double, and a process that ran for long is started soon",
    },
  },
  {
    kind: "access",
    name: "a main process does not get the user that was asked for",
    file: "daemon/pods/process/start-process.ts",
    find: "...(user === undefined ? {} : { user })",
    put: "...(user === undefined ? {} : {})",
    noticedBy: {
      file: real,
      title: "the main process has its user, its environment and the network, and ends the pod",
    },
    slow: true,
  },
  {
    kind: "repair",
    name: "a process that ignores its stop signal is not killed",
    file: "daemon/pods/process/stop-process.ts",
    find: "[killSignal, killMs],",
    put: "[stopSignal, killMs],",
    noticedBy: {
      file: real,
      title: "a stop sends the stop signal, and kills a process that does not end",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "the time of a pod has no row",
    file: "daemon/pods/store/records.ts",
    find: "if (ttlMs !== undefined) putExpiry(this.db, plan.podId, now + ttlMs);",
    put: "void ttlMs;",
    noticedBy: {
      file: lifetimes,
      title: "a pod's time goes on while podnetd is away, and by the clock that was set",
    },
  },
  {
    kind: "record",
    name: "a start by a caller does not begin a pod's time anew",
    file: "daemon/pods/lifecycle/starts.ts",
    find: "if (options.byPolicy !== true) records.expiries.renew(row);",
    put: "",
    noticedBy: { file: lifetimes, title: "a start by a caller begins a pod's time anew" },
  },
  {
    kind: "bound",
    name: "broadcasts of other pods count as use of a pod",
    file: "daemon/pods/lifetime/activity.ts",
    find: "const noisePerS = 10;",
    put: "const noisePerS = 0;",
    noticedBy: {
      file: lifetimes,
      title: "broadcasts that reach a pod are no use of it, a packet that it sends is",
    },
  },
  {
    kind: "release",
    name: "a pod is idle while a caller is attached",
    file: "daemon/pods/lifetime/activity.ts",
    find: "      this.#callers > 0 ||\n",
    put: "",
    noticedBy: {
      file: lifetimes,
      title: "a pod that is idle for long is stopped, and says why; one that is used is not",
    },
  },
  {
    kind: "repair",
    name: "a pause counts as idle time",
    file: "daemon/pods/lifetime/lifetimes.ts",
    find: "if (!isRunning) activity.rest();",
    put: "",
    noticedBy: {
      file: lifetimes,
      title: "a paused pod is not idle, nor is one whose traffic cannot be counted",
    },
  },
];
