import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { type Argument, answer, type Comparison, type Profile, type Rule } from "./filter.ts";

const field = "config.linux.security_context.seccomp.localhost_ref";
const eperm = 1;
const enosys = 38;
const mostErrno = 4095;
const mostArguments = 6;

const answers: Readonly<Record<string, number>> = {
  SCMP_ACT_ALLOW: answer.allow,
  SCMP_ACT_LOG: answer.log,
  SCMP_ACT_TRAP: answer.trap,
  SCMP_ACT_KILL: answer.killThread,
  SCMP_ACT_KILL_THREAD: answer.killThread,
  SCMP_ACT_KILL_PROCESS: answer.killProcess,
};

const comparisons: Readonly<Record<string, Comparison>> = {
  SCMP_CMP_EQ: "==",
  SCMP_CMP_NE: "!=",
  SCMP_CMP_LT: "<",
  SCMP_CMP_LE: "<=",
  SCMP_CMP_GE: ">=",
  SCMP_CMP_GT: ">",
  SCMP_CMP_MASKED_EQ: "masked",
};

/** What only some readers of profiles know, and what needs a program that answers. */
const unmeant = ["listenerPath", "listenerMetadata"] as const;
const conditions = ["includes", "excludes", "minKernel"] as const;

/**
 * Reads a profile of the OCI's runtime specification (`linux.seccomp`), as Kubernetes keeps them on
 * a node. Throws `INVALID_ARGUMENT`, and `UNSUPPORTED` for what no filter alone can do. Pure.
 */
export function parseProfile(text: string): Profile {
  const profile = objectOf(parsed(text), "The profile");
  for (const name of unmeant)
    if (profile[name] !== undefined) throw cannot(`ask the program of ${name}`);
  const otherwise = answerOf(profile["defaultAction"], profile["defaultErrnoRet"]);
  const blocks = otherwise !== answer.allow && otherwise !== answer.log;
  return {
    otherwise,
    rules: listOf(profile["syscalls"] ?? [], "syscalls").flatMap(rulesOf),
    // A program then tries an older call.
    unknown: blocks ? answer.fail(enosys) : otherwise,
  };
}

function rulesOf(value: unknown): Rule[] {
  const rule = objectOf(value, "Each of syscalls");
  for (const name of conditions)
    if (Object.keys(objectOf(rule[name] ?? {}, name)).length > 0)
      throw cannot(`follow "${name}", which Docker's own profiles have,`);
  const names = listOf(rule["names"] ?? [rule["name"]], "names").map(textOf);
  const about = { names, answer: answerOf(rule["action"], rule["errnoRet"]) };
  const args = listOf(rule["args"] ?? [], "args").map(argumentOf);
  const isOnce = new Set(args.map(({ index }) => index)).size === args.length;
  // As runtimes have it: of one argument any may agree, of several all must.
  return isOnce ? [{ ...about, args }] : args.map((each) => ({ ...about, args: [each] }));
}

function argumentOf(value: unknown): Argument {
  const { index, op, value: first, valueTwo } = objectOf(value, "Each of args");
  const is = typeof op === "string" ? comparisons[op] : undefined;
  if (is === undefined) throw wrong(`"${shownOf(op)}" is no comparison`);
  if (!isWhole(index) || index >= mostArguments) throw wrong(`"${shownOf(index)}" is no argument`);
  if (is !== "masked") return { index, is, value: amountOf(first) };
  return { index, is, mask: amountOf(first), value: amountOf(valueTwo ?? 0) };
}

function answerOf(action: unknown, errno: unknown): number {
  if (action === "SCMP_ACT_ERRNO") {
    const number = errno ?? eperm;
    if (!isWhole(number) || number > mostErrno) throw wrong(`"${shownOf(errno)}" is no errno`);
    return answer.fail(number);
  }
  const found = typeof action === "string" ? answers[action] : undefined;
  if (found !== undefined) return found;
  if (action === "SCMP_ACT_NOTIFY" || action === "SCMP_ACT_TRACE")
    throw cannot(`answer by ${action}`);
  throw wrong(`"${shownOf(action)}" is no action`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw wrong("The profile is no JSON", cause);
  }
}

const isWhole = (value: unknown): value is number => Number.isInteger(value) && Number(value) >= 0;

/** Numbers of JSON are exact up to 2^53. */
function amountOf(value: unknown): bigint {
  if (isWhole(value)) return BigInt(value);
  throw wrong(`"${shownOf(value)}" is no value of an argument`);
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  throw wrong(`"${shownOf(value)}" is no name of a system call`);
}

function objectOf(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>;
  throw wrong(`${what} is no object`);
}

function listOf(value: unknown, what: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw wrong(`"${what}" is no list`);
}

const shownOf = (value: unknown): string => printable(String(value)).slice(0, 80);

const wrong = (message: string, cause?: unknown): PodnetError =>
  new PodnetError("INVALID_ARGUMENT", message, {
    field,
    hint: "Use a profile as the OCI's runtime specification has it (linux.seccomp)",
    ...(cause === undefined ? {} : { cause }),
  });

const cannot = (what: string): PodnetError =>
  new PodnetError("UNSUPPORTED", `podnet cannot ${what} in a profile of system calls`, {
    field,
    hint: "Use names, actions and args alone; SCMP_ACT_ERRNO refuses a call",
  });
