import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import { quotesOf } from "./error-details.ts";
import { exitCodeOf } from "../exit-codes.ts";
import type { GivenFlags } from "../flags/given.ts";
import type { Io } from "../io.ts";
import type { Format } from "../output.ts";
import { harmless, styled } from "./text.ts";

/**
 * Prints an error on standard error, never with a stack, and returns the exit code. The flag that
 * gave the error's field its value is named alongside it.
 */
export function report(io: Io, thrown: unknown, format: Format, given?: GivenFlags): number {
  const error = toPodnetError(thrown);
  const flag = error.field === undefined ? undefined : given?.flagOf(error.field);
  if (format === "json") {
    const { code, message, hint = "", field = "", step = "", details } = error;
    const about = { code, message, hint, field, flag: flag ?? "", step, details };
    io.stderr.write(`${JSON.stringify({ error: about })}\n`);
  } else {
    io.stderr.write(`${lines(io, error, flag).join("\n")}\n`);
  }
  return exitCodeOf(error);
}

function lines(io: Io, error: PodnetError, flag: string | undefined): string[] {
  const out = io.stderr;
  const about = [
    ...(flag === undefined ? [] : [["flag", flag]]),
    ...(error.field === undefined ? [] : [["field", error.field]]),
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
