import test from "ava";
import * as fc from "fast-check";
import {
  encodeStepResults,
  encodeSteps,
  parseStepResults,
  parseSteps,
  type Step,
} from "../../../../guest-init/protocol/steps.ts";

const bytes = fc.uint8Array({ maxLength: 300 });
const text = fc.string({ unit: fc.constantFrom("a", "/", "é", "𝄞", "\n", " ") });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant("entropy" as const), bytes }),
  fc.record({ kind: fc.constant("clock" as const), ms: fc.maxSafeNat() }),
  fc.record({ kind: fc.constant("clock" as const) }),
  fc.record({ kind: fc.constant("hostname" as const), name: text }),
  fc.record({ kind: fc.constant("resolver" as const), text }),
  fc.record({ kind: fc.constant("write-file" as const), path: text, text }),
  fc.record({ kind: fc.constant("read-file" as const), path: text }),
  fc.record({ kind: fc.constant("netlink" as const), requests: bytes }),
  fc.record({
    kind: fc.constant("packet" as const),
    to: fc.uint8Array({ minLength: 20, maxLength: 20 }),
    frame: bytes,
  }),
  fc.record({
    kind: fc.constant("twin" as const),
    epoch: fc.constantFrom("1", "0f0f"),
    machineId: fc.constantFrom("0f".repeat(16), "a".repeat(32)),
  }),
);

test("steps and results come back as they were, whatever they are", (t) => {
  fc.assert(
    fc.property(fc.array(step), (steps) => {
      t.deepEqual(parseSteps(encodeSteps(steps)), steps);
    }),
  );
  fc.assert(
    fc.property(fc.array(bytes), fc.nat(4095), (done, errno) => {
      t.deepEqual(parseStepResults(encodeStepResults({ done, errno })), { done, errno });
    }),
  );
});

test("steps that are cut off, unknown or no text are refused", (t) => {
  const whole = encodeSteps([{ kind: "clock", ms: 1_700_000_000_000 }]);
  for (let length = 1; length < whole.length; length++)
    t.throws(() => parseSteps(whole.subarray(0, length)), { code: "AGENT_PROTOCOL" });
  for (const wrong of [
    [0, 0, 0, 15], // of no kind
    [0, 0, 0, 0x11, 7], // a clock of one byte
    [0, 0, 0, 0x81, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], // a time beyond what a number holds
    [0, 0, 0, 0x12, 0], // a name that is NUL
    [0, 0, 0, 0x14, 0x61], // a path without text
    [0, 0, 0, 0x17, 0], // a packet without an address
    [0, 0, 0, 0x28, 0x61, 0x62], // a twin with one name
    [0, 0, 0, 0x28, 0x61, 0], // a twin without a machine id
    [0, 0, 2, 0x18, 0, ...Buffer.from("0".repeat(32))], // a twin without an epoch
    [0, 0, 2, 0x28, 0x61, 0, ...Buffer.from("Z".repeat(32))], // an id of other letters
  ])
    t.throws(() => parseSteps(Uint8Array.from(wrong)), { code: "AGENT_PROTOCOL" });
});

test("results that are cut off are refused, and none is longer than the message", (t) => {
  const whole = encodeStepResults({ done: [Uint8Array.of(1, 2, 3)], errno: 0 });
  for (const length of [0, 1, 3, 5, 7, 8, 10])
    t.throws(() => parseStepResults(whole.subarray(0, length)), { code: "AGENT_PROTOCOL" });
  t.throws(() => parseStepResults(Uint8Array.of(0, 0, 0, 0, 255, 255, 255, 255, 1)), {
    code: "AGENT_PROTOCOL",
  });
});
