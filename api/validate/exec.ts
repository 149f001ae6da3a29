import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { ExecStart } from "../gen/podnet/v1/pod_service_pb.ts";
import { parseUserText, type UserAndGroup } from "../../core/user-text.ts";
import { checkCount, invalid } from "../fields.ts";

/** A program to run in a guest, every field checked. */
export interface ExecSpec {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly workdir: string;
  /** Undefined: root. */
  readonly user: UserAndGroup | undefined;
  /** Milliseconds after which it is killed; undefined: never. */
  readonly timeoutMs: number | undefined;
  readonly terminal: boolean;
  readonly rows: number;
  readonly columns: number;
}

const most = {
  args: 256,
  bytes: 64 << 10,
  env: 256,
  size: 4096,
  timeoutMs: 7 * 86_400_000,
} as const;
const bytes = (texts: readonly string[]): number =>
  texts.reduce((sum, text) => sum + Buffer.byteLength(text) + 1, 0);

/** Checks what a caller names a pod by. Throws `INVALID_ARGUMENT`. */
export function validatePodRef(text: string): string {
  // Names are DNS labels and ids are made of letters that labels have too.
  if (!/^[a-z0-9-]{1,63}$/.test(text)) {
    throw invalid(
      "id_or_name",
      text === "" ? "No pod is named" : `"${printable(text)}" is neither a name nor an id`,
      "Give a pod's name or id, as `podnet list` shows them",
    );
  }
  return text;
}

/** Checks what a caller names a program in a guest by. Throws `INVALID_ARGUMENT`. */
export function validateExecId(text: string): string {
  if (/^[0-9a-f]{16}$/.test(text)) return text;
  throw invalid(
    "exec_id",
    `"${printable(text)}" is not the id of a program`,
    "Give 16 hexadecimal digits, as podnet execs list shows them",
  );
}

/** Checks the first message of an Exec. */
export function validateExec(start: ExecStart): ExecSpec {
  const { args, env, workdir, terminal } = start;
  checkCount(args, most.args, "start.args");
  checkCount(Object.keys(env), most.env, "start.env");
  if (args.length === 0 || args[0] === "") {
    throw invalid("start.args", "No program is named", "Give the program and its arguments");
  }
  const pairs = Object.entries(env).map(([key, value]) => `${key}=${value}`);
  if (bytes([...args, ...pairs]) > most.bytes) {
    throw invalid("start.args", "Arguments and environment are too long", "Use at most 64 KiB");
  }
  // The NUL that ends every string of execve(2) cannot be within one.
  if ([...args, ...pairs, workdir].some((text) => text.includes("\0"))) {
    throw invalid("start.args", "A NUL character cannot be passed on", "Leave it out");
  }
  for (const key of Object.keys(env)) {
    if (!/^[A-Za-z_][A-Za-z0-9_.-]*$/.test(key)) {
      throw invalid(
        `start.env["${printable(key)}"]`,
        `"${printable(key)}" is not a variable's name`,
        "Start with a letter or _, and go on with letters, digits and _",
      );
    }
  }
  if (workdir !== "" && !workdir.startsWith("/")) {
    throw invalid(
      "start.workdir",
      `"${printable(workdir)}" is not an absolute path`,
      "Write the full path in the guest",
    );
  }
  if (start.timeoutMs > most.timeoutMs) {
    throw invalid("start.timeout_ms", "The program's time is too long", "Give at most a week");
  }
  return {
    args: [...args],
    env: { ...env },
    workdir: workdir === "" ? "/" : workdir,
    user: parseUserText(start.user, "start.user"),
    timeoutMs: start.timeoutMs === 0 ? undefined : start.timeoutMs,
    terminal,
    ...validateSize(start),
  };
}

/** Checks a terminal's size; 0 is 24 rows, 80 columns. */
export function validateSize(size: { readonly rows: number; readonly columns: number }): {
  readonly rows: number;
  readonly columns: number;
} {
  if (size.rows > most.size || size.columns > most.size) {
    throw invalid("rows", "The terminal is too large", `Use at most ${most.size} rows and columns`);
  }
  return { rows: size.rows || 24, columns: size.columns || 80 };
}

/** Checks the number of a signal to send. */
export function validateSignal(signal: number): number {
  if (Number.isInteger(signal) && signal >= 1 && signal <= 64) return signal;
  throw new PodnetError("INVALID_ARGUMENT", `${signal} is not a signal`, {
    field: "signal.signal",
    hint: "Use 1 to 64, as kill -l lists them",
  });
}
