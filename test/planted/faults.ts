import type { Fault } from "./tree.ts";

/**
 * Faults that somebody could make tomorrow — a step of the undo forgotten, a lock, a check of a length, a release —
 * each with the test that has to notice it.
 */
export const faults: readonly Fault[] = [
  {
    name: "the undo forgets the machine",
    file: "daemon/pod/steps.ts",
    find: '{ kind: "vm.stop" },\n    { kind: "tap.close" }',
    put: '{ kind: "tap.close" }',
    noticedBy: {
      file: "test/unit/daemon-steps.test.ts",
      title: "a plan's steps and their undo are data",
    },
  },
  {
    name: "taps of a failed create stay open",
    file: "daemon/pod/undo.ts",
    find: "await everyOne(taps.map((tap) => tap.close()));",
    put: "await everyOne([]);",
    noticedBy: {
      file: "test/unit/daemon-steps.test.ts",
      title: 'when "open tap1" fails everything is undone and the step is named',
    },
  },
  {
    name: "the undo ends at its first failure",
    file: "daemon/pod/undo.ts",
    find: "failures.push(toPodnetError(thrown).with({ step: step.kind }));",
    put: "failures.push(toPodnetError(thrown).with({ step: step.kind }));\n      break;",
    noticedBy: {
      file: "test/unit/daemon-steps.test.ts",
      title: 'taking down goes on past a failing "stop" and tells of it',
    },
  },
  {
    name: "a pod's lock lets everybody in",
    file: "daemon/keyed-lock.ts",
    find: "const mine = before.then(body, body);",
    put: "void before;\n    const mine = body();",
    noticedBy: {
      file: "test/unit/daemon-parts.test.ts",
      title: "one key is worked on by one at a time and in order, different keys side by side",
    },
  },
  {
    name: "a QMP line may have any length",
    file: "hypervisor/qmp/lines.ts",
    find: "if (this.#held + piece.length > this.#limit) {",
    put: "if (this.#limit < 0) {",
    noticedBy: {
      file: "test/unit/qmp-lines.test.ts",
      title: "a line of the limit passes, one byte more does not",
    },
  },
  {
    name: "an address of a deleted pod is never given back",
    file: "daemon/pod/records.ts",
    find: "this.#addresses.free(plan);",
    put: "",
    noticedBy: {
      file: "test/unit/daemon-pods.test.ts",
      title: "a freed address rests, over a restart too, unless no other is left",
    },
  },
];
