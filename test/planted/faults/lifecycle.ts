import type { Fault } from "../fault.ts";

const unit = "test/unit/daemon/pods/lifecycle.test.ts";
const traffic = "test/unit/daemon/traffic/traffic.test.ts";
const packets = "test/kernel/linux-packets.test.ts";

/** Pauses, ends and the traffic of pods. */
export const lifecycleFaults: readonly Fault[] = [
  {
    kind: "undo",
    name: "a pause that is not written down leaves the machine paused",
    file: "daemon/pods/lifecycle/lifecycle.ts",
    find: "await vm.resume(limited(limitMs, live.ended.signal)).then(\n      () => live.time.go(),",
    put: "await Promise.resolve().then(\n      () => live.time.go(),",
    noticedBy: {
      file: unit,
      title: "a pause that cannot be written down, or not be done, leaves a pod that runs",
    },
  },
  {
    kind: "record",
    name: "a machine paused while podnetd was away is taken over as it was recorded",
    file: "daemon/pods/lifecycle/take-over.ts",
    find: "    noteRunStateOrLater(live, state, recovery);\n",
    put: "",
    noticedBy: { file: unit, title: "a running pod whose machine stands is taken over as paused" },
  },
  {
    kind: "record",
    name: "a pause by another program is not recorded",
    file: "daemon/pods/lifecycle/lifecycle.ts",
    find: 'if (!runs) records.state(live.plan, "paused", { reason });',
    put: "if (!runs) return;",
    noticedBy: {
      file: unit,
      title: "outside changes to a machine are shown, and its guest is configured after it",
    },
  },
  {
    kind: "bound",
    name: "a machine that is paused over and over is looked at each time",
    file: "daemon/pods/lifecycle/lifecycle.ts",
    find: "    if (queued) {",
    put: "    if (lookedAt === 0) {",
    noticedBy: {
      file: unit,
      title: "a machine that is stopped over and over is looked at once a second",
    },
  },
  {
    kind: "undo",
    name: "a paused guest gets the power button without being resumed",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "        await resumeForItsEnd(live);\n",
    put: "",
    noticedBy: {
      file: unit,
      title: "a paused pod powers off having been resumed; with force it is ended as it is",
    },
  },
  {
    kind: "repair",
    name: "a guest whose machine was paused keeps its clock",
    file: "daemon/pods/lifecycle/lifecycle.ts",
    find: "  await configureNow(live, watch, resumed, live.ended.signal);\n}",
    put: "}",
    noticedBy: {
      file: unit,
      title: "a resume that cannot be written down, or not be done, leaves a paused pod",
    },
  },
  {
    kind: "lock",
    name: "a paused guest's deadlines pass",
    file: "guest-init/channel/guest-time.ts",
    find: "for (const timer of this.#timers) timer.hold();",
    put: "",
    noticedBy: {
      file: "test/unit/guest-init/channel/guest-time.test.ts",
      title: "what is due is done when the guest has had its time, not before",
    },
  },
  {
    kind: "record",
    name: "a NIC that was plugged anew has the rates of the one before",
    file: "daemon/traffic/rates.ts",
    find: "before === undefined || before.link.index !== now.link.index",
    put: "before === undefined",
    noticedBy: { file: traffic, title: "there are no rates where they would be wrong" },
  },
  {
    kind: "bound",
    name: "a capture reads all there is in one turn",
    file: "linux/packets/packet-stream.ts",
    find: "this.#take(Math.min(limit, mostFrames))",
    put: "this.#take(limit)",
    noticedBy: {
      file: packets,
      title: "what is not read is dropped by the kernel and counted; the rest is there in order",
    },
  },
  {
    kind: "record",
    name: "packets that the kernel dropped are not counted",
    file: "linux/packets/packet-stream.ts",
    find: "      this.#lost += this.#socket.takeDropped();\n",
    put: "",
    noticedBy: {
      file: packets,
      title: "what is not read is dropped by the kernel and counted; the rest is there in order",
    },
  },
  {
    kind: "access",
    name: "a capture takes packets of other links",
    file: "linux/packets/packet-socket.ts",
    find: "sockaddr.setInt32(4, index, true);",
    put: "sockaddr.setInt32(4, 0, true);",
    noticedBy: { file: packets, title: "nothing of other links is taken" },
  },
  {
    kind: "bound",
    name: "a caller may have any number of captures",
    file: "daemon/listeners/callers.ts",
    find: "if (this.#account.captures >= capturesPerCaller)",
    put: "if (this.#account.captures < 0)",
    noticedBy: {
      file: "test/unit/daemon/listeners/callers.test.ts",
      title: "captures: so many of one caller, given back once, and another has its own",
    },
  },
  {
    kind: "record",
    name: "the log says after podnet down that pods run on",
    file: "daemon/main/command.ts",
    find: 'return stop("podnet down", removed);',
    put: 'return stop("podnet down");',
    noticedBy: {
      file: "test/kernel/daemon-down.test.ts",
      title: "podnetd's last log line says that down removed the pods, and else that they run on",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "restarts of a guest are counted up to one",
    file: "daemon/pods/lifecycle/supervise.ts",
    find: "live.restarts = { count, text };",
    put: "live.restarts = { count: 1, text };",
    noticedBy: {
      file: "test/vm/standin-restarts.test.ts",
      title: "a guest that restarts by itself is counted, and the pod's reason says so",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "each restart after a panic is taken for one more panic",
    file: "daemon/pods/guest/console-tail.ts",
    find: '.test(lines.at(-1) ?? "")',
    put: ".test(lines.join())",
    noticedBy: {
      file: "test/unit/daemon/parts.test.ts",
      title: "a reset is a panic's only when the console ends with it",
    },
  },
  {
    kind: "bound",
    name: "the limits of a jail stay as they were when its machine grows",
    file: "daemon/pods/lifecycle/resize.ts",
    find: "return { ...vm, grown: size, ...(jail === undefined ? {} : { jail }) };",
    put: "return { ...vm, grown: size };",
    noticedBy: {
      file: "test/unit/daemon/pods/resize.test.ts",
      title: "growth and start are decided without the host, and count from what the machine has",
    },
  },
  {
    kind: "record",
    name: "a row keeps the size asked for where the machine did not take it",
    file: "daemon/pods/lifecycle/resize.ts",
    find: "const after = { ...plan, vm: grownTo(plan.vm, size) };",
    put: "const after = plan;",
    noticedBy: {
      file: "test/unit/daemon/pods/resize.test.ts",
      title: "a row says what the machine has when it could not grow",
    },
  },
  {
    kind: "mark",
    name: "a pod of the pool is announced before its port is ready, though others had its address",
    file: "daemon/pods/lifecycle/actions.ts",
    find: "withNic(plan.interfaces).every(({ fresh }) => fresh === true)",
    put: "withNic(plan.interfaces).length > 0",
    noticedBy: {
      file: "test/unit/daemon/pods/claimed.test.ts",
      title: "an address that was another's is announced when the port is ready",
    },
  },
  {
    kind: "record",
    name: "a pod's program starts before its row survives a loss of power",
    file: "daemon/pods/lifecycle/bring-up.ts",
    find: "  plan.process === undefined &&\n",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/pods/claimed.test.ts",
      title: "what outlasts a loss of power waits for its row",
    },
  },
];
