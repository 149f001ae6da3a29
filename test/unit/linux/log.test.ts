import test from "ava";
import { PodnetError } from "../../../core/errors.ts";
import { type Log, type LogOptions, LogThreshold, openLog } from "../../../linux/log.ts";

function capture(options: Partial<LogOptions> = {}): {
  log: Log;
  lines: Record<string, unknown>[];
} {
  const lines: Record<string, unknown>[] = [];
  const write = (line: string): void => {
    lines.push(JSON.parse(line) as Record<string, unknown>);
  };
  return { log: openLog({ component: "test", to: { write }, ...options }), lines };
}

test("a line is one JSON object with time, level, message and component", (t) => {
  const { log, lines } = capture();
  log.info({ pod_id: "abcdefghijkl", step: "nic.plug", duration_ms: 3.2 }, "Plugged");
  t.like(lines[0], {
    level: "info",
    msg: "Plugged",
    component: "test",
    pod_id: "abcdefghijkl",
    step: "nic.plug",
    duration_ms: 3.2,
  });
  t.regex(lines[0]?.["time"] as string, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  t.deepEqual(
    Object.keys(lines[0] ?? {}).filter((key) => key === "pid" || key === "hostname"),
    [],
  );
});

test("lower levels are left out, fields are inherited", (t) => {
  const { log, lines } = capture({ level: "warn" });
  const pod = log.with({ pod_id: "abcdefghijkl" });
  pod.debug({}, "no");
  pod.info({}, "no");
  pod.warn({}, "yes");
  pod.error({ step: "x" }, "yes");
  t.deepEqual(
    lines.map(({ level, pod_id }) => [level, pod_id]),
    [
      ["warn", "abcdefghijkl"],
      ["error", "abcdefghijkl"],
    ],
  );
});

test("a threshold is that of all logs that have it, also of those made before it changed", (t) => {
  const level = new LogThreshold("info");
  const { log, lines } = capture({ level });
  const pod = log.with({ pod_id: "abcdefghijkl" });
  pod.debug({}, "no");
  level.level = "debug";
  pod.debug({}, "yes");
  log.debug({}, "yes");
  level.level = "error";
  pod.warn({}, "no");
  pod.with({}).error({}, "yes");
  level.level = "silent";
  log.error({}, "no");
  t.deepEqual(
    lines.map(({ msg }) => msg),
    ["yes", "yes", "yes"],
  );
});

test("an error is written with code, hint, details and its causes", (t) => {
  const { log, lines } = capture();
  const cause = new PodnetError("SYSCALL_FAILED", "inner", { cause: new Error("root") });
  const err = new PodnetError("NETLINK_FAILED", "outer", { hint: "h", details: { a: 1 }, cause });
  log.error({ err }, "Failed");
  t.like(lines[0]?.["err"], {
    code: "NETLINK_FAILED",
    message: "outer",
    hint: "h",
    details: { a: 1 },
    cause: { code: "SYSCALL_FAILED", cause: { type: "Error", message: "root" } },
  });
});
