import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import { quotesOf } from "./error-details.ts";
import { exitCodeOf } from "../exit-codes.ts";
import type { Io } from "../io.ts";
import type { Format } from "../output.ts";
import { harmless, styled } from "./text.ts";

/** Prints an error on standard error, never with a stack, and returns the exit code. */
export function report(io: Io, thrown: unknown, format: Format): number {
  const error = toPodnetError(thrown);
  if (format === "json") {
    const { code, message, hint = "", field = "", step = "", details } = error;
    io.stderr.write(
      `${JSON.stringify({ error: { code, message, hint, field, step, details } })}\n`,
    );
  } else {
    io.stderr.write(`${lines(io, error).join("\n")}\n`);
  }
  return exitCodeOf(error);
}

function lines(io: Io, error: PodnetError): string[] {
  const out = io.stderr;
  const about = [
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
