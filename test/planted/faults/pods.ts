import type { Fault } from "../fault.ts";

const steps = "test/unit/daemon/pods/steps.test.ts";
const pods = "test/unit/daemon/pods/pods.test.ts";
const failingTap = {
  file: steps,
  title: 'when "open tap1" fails everything is undone and the step is named',
};
const failingReady = {
  file: steps,
  title: 'when "ready" fails everything is undone and the step is named',
};
const asData = { file: steps, title: "a plan's steps and their undo are data" };

const commits = {
  file: "test/unit/daemon/store/commits.test.ts",
  title: "a pod's life waits for the disk at most twice for each call",
};

/** A pod's life: its undo step by step, and its lock. */
export const podsFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "an event of a step waits for the disk",
    file: "daemon/pods/store/records.ts",
    find: "data: { text, span } }, ofMachine);",
    put: "data: { text, span } }, essential);",
    noticedBy: commits,
  },
  {
    kind: "record",
    name: "that a pod was deleted may be lost with the power",
    file: "daemon/pods/store/records.ts",
    find: "      essential,\n    );\n    this.#addresses.freed(plans);",
    put: "      ofMachine,\n    );\n    this.#addresses.freed(plans);",
    noticedBy: commits,
  },
  {
    kind: "undo",
    name: "the undo knows nothing of interfaces that are being removed",
    file: "daemon/pods/interfaces/pod-ports.ts",
    find: "plan.interfaces.map(({ leaving: _leaving, ...each }) => each)",
    put: "plan.interfaces",
    noticedBy: {
      file: steps,
      title: "an interface whose removal was cut short is looked for at the host all the same",
    },
  },
  {
    kind: "undo",
    name: "the undo leaves ports on their bridge until their machine has ended",
    file: "daemon/pods/plan/steps.ts",
    find: '...(length === 0 ? [] : [{ kind: "port.detach" } as const]),',
    put: "",
    noticedBy: asData,
  },
  {
    kind: "undo",
    name: "the undo forgets the machine",
    file: "daemon/pods/machine/own.ts",
    find: 'end: [{ kind: "guest.power-off" }, { kind: "vm.stop" }],',
    put: 'end: [{ kind: "guest.power-off" }],',
    noticedBy: asData,
  },
  {
    kind: "undo",
    name: "links and neighbours of a pod are not forgotten",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "await host.network.remove(target, signal);",
    put: "void [target, host];",
    noticedBy: failingTap,
  },
  {
    kind: "undo",
    name: "a machine that no connection knows of is not reaped",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "await host.driver.reap(live.record, live.plan.vm);",
    put: "",
    noticedBy: failingTap,
  },
  {
    kind: "release",
    name: "taps of a failed create stay open",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "await everyOne(taps.map((tap) => tap.close()));",
    put: "await everyOne([]);",
    noticedBy: failingTap,
  },
  {
    kind: "release",
    name: "the guest's channel of a failed create stays open",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "await guest.close();",
    put: "",
    noticedBy: failingReady,
  },
  {
    kind: "release",
    name: "a tap stays open alongside the copy its QEMU has",
    file: "daemon/pods/lifecycle/actions.ts",
    find: "await tap.close();",
    put: "",
    noticedBy: { file: steps, title: "the guest is notified before its NICs are plugged" },
  },
  {
    kind: "undo",
    name: "the undo ends at its first failure",
    file: "daemon/pods/lifecycle/undo.ts",
    find: "failures.push(toPodnetError(thrown).with({ step: step.kind }));",
    put: "failures.push(toPodnetError(thrown).with({ step: step.kind }));\n      break;",
    noticedBy: { file: steps, title: 'taking down goes on past a failing "stop" and reports it' },
  },
  {
    kind: "undo",
    name: "one port that cannot leave its bridge keeps the others on it",
    file: "daemon/pods/lifecycle/undo.ts",
    find: `await everyOne(
      everyPort(live.plan).ports.map(({ tap }) =>
        host.network.remove({ kind: "ports", pod: live.plan.podId, tap }, signal),
      ),
    );`,
    put: `for (const { tap } of everyPort(live.plan).ports)
      await host.network.remove({ kind: "ports", pod: live.plan.podId, tap }, signal);`,
    noticedBy: {
      file: steps,
      title: 'taking down goes on past a failing "detach tap0" and reports it',
    },
  },
  {
    kind: "undo",
    name: "errors of the undo hide the first one",
    file: "daemon/pods/lifecycle/run-steps.ts",
    find: "const error = toPodnetError(first);",
    put: "const error = toPodnetError(others.at(-1) ?? first);",
    noticedBy: {
      file: steps,
      title:
        "when undoing fails too, the first error keeps its word and the others stand behind it",
    },
  },
  {
    kind: "undo",
    name: "a pod whose running cannot be written down runs on",
    file: "daemon/pods/lifecycle/bring-up.ts",
    find: "await commit(ordered());",
    put: "try {\n      await commit(ordered());\n    } catch {}",
    noticedBy: { file: steps, title: "what cannot be made durable did not happen" },
  },
  {
    kind: "undo",
    name: "a caller's end does not end its create",
    file: "daemon/pods/lifecycle/bring-up.ts",
    find: "const stop = AbortSignal.any([signal, live.ended.signal, unsafe.signal]);",
    put: "const stop = AbortSignal.any([live.ended.signal]);\n    void signal;",
    noticedBy: { file: steps, title: "a caller that gives up is the reason, at whatever step" },
  },
  {
    kind: "record",
    name: "a machine is started before its pod is written down",
    file: "daemon/pods/lifecycle/starts.ts",
    find: "this.#parts.records.claim(plan, asked.spec, request);\n    const machine",
    put: "setImmediate(() => this.#parts.records.claim(plan, asked.spec, request));\n    const machine",
    noticedBy: {
      file: pods,
      title: "nothing happens on the host before what allows to undo it is stored",
    },
  },
  {
    kind: "record",
    name: "a machine is not written down before more is built on it",
    file: "daemon/pods/lifecycle/actions.ts",
    find: "host.recordRun(live.plan, vm.record);",
    put: "",
    noticedBy: { file: steps, title: "the guest is notified before its NICs are plugged" },
  },
  {
    kind: "lock",
    name: "a pod's lock lets everybody in",
    file: "daemon/reconcile/keyed-lock.ts",
    find: "const mine = before.then(body, body);",
    put: "void before;\n    const mine = body();",
    noticedBy: {
      file: "test/unit/daemon/parts.test.ts",
      title: "one key is worked on by one at a time and in order, different keys side by side",
    },
  },
  {
    kind: "release",
    name: "a pod's lock is kept for ever",
    file: "daemon/reconcile/keyed-lock.ts",
    find: "if (this.#last.get(key) === mine) this.#last.delete(key);",
    put: "",
    noticedBy: {
      file: "test/unit/daemon/parts.test.ts",
      title: "one key is worked on by one at a time and in order, different keys side by side",
    },
  },
  {
    kind: "lock",
    name: "two starts of one pod work at once",
    file: "daemon/pods/lifecycle/starts.ts",
    find: "return await locks.run(id, async () => {\n      // When it is its turn",
    put: "return await (async (_: unknown, body: () => Promise<PodRow>) => body())(id, async () => {\n      // When it is its turn",
    noticedBy: {
      file: pods,
      title: "a start that waits for another is refused when the daemon ends meanwhile",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "record",
    name: "a pod is said to run before it does",
    file: "daemon/pods/lifecycle/bring-up.ts",
    find: "const stop = AbortSignal.any([signal, live.ended.signal, unsafe.signal]);",
    put: `const stop = AbortSignal.any([signal, live.ended.signal, unsafe.signal]);
    commit(ordered());`,
    noticedBy: {
      file: "test/crash/order.test.ts",
      title: "no step begins before its row is durable, and no row goes before what it stands for",
    },
    slow: true,
  },
];
