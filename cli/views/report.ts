import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import { quotesOf } from "./error-details.ts";
import { exitCodeOf } from "../exit-codes.ts";
import type { Context } from "../context.ts";
import { type Typed, typedFor } from "../flags/typed.ts";
import type { Io } from "../io.ts";
import type { Format } from "../output.ts";
import { harmless, styled } from "./text.ts";

/**
 * Prints an error on standard error, never with a stack, and returns the exit code. The flag or the
 * argument that gave the error's field its value is named alongside it.
 */
export function report({ io, given, command }: Context, thrown: unknown, format: Format): number {
  const error = toPodnetError(thrown);
  const typed = error.field === undefined ? undefined : typedFor(error.field, given, command);
  if (format === "json") {
    const { code, message, hint = "", field = "", step = "", details } = error;
    const [flag, argument] = [wordOf(typed, "flag"), wordOf(typed, "argument")];
    const about = { code, message, hint, field, flag, argument, step, details };
    io.stderr.write(`${JSON.stringify({ error: about })}\n`);
  } else {
    io.stderr.write(`${lines(io, error, typed).join("\n")}\n`);
  }
  return exitCodeOf(error);
}

const wordOf = (typed: Typed | undefined, kind: Typed["kind"]): string =>
  typed?.kind === kind ? typed.text : "";

function lines(io: Io, error: PodnetError, typed: Typed | undefined): string[] {
  const out = io.stderr;
  const about = [
    ...(typed === undefined ? [] : [[typed.kind, typed.text]]),
    ...(error.field === undefined || error.field === typed?.text ? [] : [["field", error.field]]),
    ...(error.step === undefined ? [] : [["step", error.step]]),
    ...(error.hint === undefined ? [] : [["hint", error.hint]]),
  ] as [string, string][];
  return [
    `${styled(out, "red", "error:")} ${harmless(error.message)} ${styled(out, "dim", `(${error.code})`)}`,
    ...about.map(([name, text]) => `  ${styled(out, "cyan", `${name}:`)} ${harmless(text)}`),
    ...quotesOf(error.details, error.message).flatMap(({ name, lines: said }) => [
      `  ${styled(out, "cyan", `details, ${name}:`)}`,
      ...said.map((line) => `    ${line}`),
    ]),
  ];
}
