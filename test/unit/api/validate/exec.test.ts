import { create, type MessageInitShape } from "@bufbuild/protobuf";
import test from "ava";
import { ExecStartSchema } from "../../../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateExec, validatePodRef, validateSignal } from "../../../../api/validate/exec.ts";
import { PodnetError } from "../../../../core/errors.ts";

const times = <T>(count: number, item: T): T[] => Array.from({ length: count }, () => item);
const many = (n: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length: n }, (_, i) => [`k${i}`, ""]));

test("an exec is checked before it reaches a guest", (t) => {
  const exec = (init: MessageInitShape<typeof ExecStartSchema>): ReturnType<typeof validateExec> =>
    validateExec(create(ExecStartSchema, init));
  t.deepEqual(exec({ args: ["ls", ""], env: { A: "b=c" } }), {
    args: ["ls", ""],
    env: { A: "b=c" },
    workdir: "/",
    user: undefined,
    timeoutMs: undefined,
    terminal: false,
    rows: 24,
    columns: 80,
  });
  const as = (user: string) => exec({ args: ["ls"], user }).user;
  t.deepEqual(as("web"), { user: "web" });
  t.deepEqual(as("1000:adm"), { user: "1000", group: "adm" });
  for (const [init, field] of [
    [{}, "start.args"],
    [{ args: [""] }, "start.args"],
    [{ args: times(257, "a") }, "start.args"],
    [{ args: ["a\0b"] }, "start.args"],
    [{ args: ["x".repeat(65 << 10)] }, "start.args"],
    [{ args: ["ls"], env: { "A B": "" } }, 'start.env["A B"]'],
    [{ args: ["ls"], env: many(257) }, "start.env"],
    [{ args: ["ls"], workdir: "tmp" }, "start.workdir"],
    [{ args: ["ls"], rows: 5000 }, "rows"],
    [{ args: ["ls"], timeoutMs: 604_800_001 }, "start.timeout_ms"],
    [{ args: ["ls"], user: "a:b:c" }, "start.user"],
    [{ args: ["ls"], user: ":adm" }, "start.user"],
    [{ args: ["ls"], user: "web:" }, "start.user"],
    [{ args: ["ls"], user: "web\nroot" }, "start.user"],
    [{ args: ["ls"], user: "x".repeat(65) }, "start.user"],
  ] as const) {
    const error = t.throws(() => exec(init as { args: string[] }), { instanceOf: PodnetError });
    t.deepEqual([error?.code, error?.field], ["INVALID_ARGUMENT", field]);
  }
});

test("what names a pod, and what is a signal", (t) => {
  t.is(validatePodRef("web-1"), "web-1");
  for (const text of ["", "a b", "../x", "x".repeat(64)]) {
    t.throws(() => validatePodRef(text), { instanceOf: PodnetError });
  }
  t.is(validateSignal(15), 15);
  for (const signal of [0, 65, 1.5])
    t.throws(() => validateSignal(signal), { instanceOf: PodnetError });
});
