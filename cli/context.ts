import { type Command, InvalidArgumentError, Option } from "commander";
import type { Podnet } from "../api/client.ts";
import { PodnetError } from "../core/errors.ts";
import { exitCodes } from "./exit-codes.ts";
import { GivenFlags } from "./flags/given.ts";
import { type Io, interruption } from "./io.ts";
import { type Format, isTemplate } from "./output.ts";
import type { TargetOptions } from "./target.ts";

/** Shared by all parts of one run of the program. */
export interface Context {
  readonly io: Io;
  readonly given: GivenFlags;
  /** The command that runs; undefined until its arguments are read. */
  command?: Command;
  /** The command, or the group, that the first words name. */
  typing?: Command;
  exitCode: number;
}

/** What one run of the program begins with. */
export const contextOf = (io: Io): Context => ({
  io,
  given: new GivenFlags(),
  exitCode: exitCodes.ok,
});

/** Options that every command takes. */
export type CommonOptions = TargetOptions;

export interface OutputOptions extends CommonOptions {
  readonly output: Format;
}

const formats = ["table", "json", "yaml", "jsonpath=TEMPLATE"];

/** Checks the value of `-o`. Throws what commander reports as wrong usage. */
function formatOf(text: string, choices: readonly string[]): string {
  if (isTemplate(text) || (choices.includes(text) && text !== formats[3])) return text;
  throw new InvalidArgumentError(`Allowed choices are ${choices.join(", ")}.`);
}

/** Adds `-o`, with more formats than every command has. */
export const addOutput = (command: Command, more: readonly string[] = []): Command =>
  command.addOption(
    new Option("-o, --output <format>", "how to print")
      .choices([...formats, ...more])
      .argParser((text) => formatOf(text, [...formats, ...more]))
      .default("table"),
  );

/**
 * Runs `body` with a connection that is closed after it, and a signal that follows SIGINT and
 * SIGTERM; after one of those the error is `CANCELLED` with the signal's number.
 */
export async function withPodnet<T>(
  { io }: Context,
  options: CommonOptions,
  body: (podnet: Podnet, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  using interrupted = interruption(io);
  using podnet = await io.connect(options);
  const { signal } = interrupted;
  try {
    return await body(podnet, signal);
  } catch (thrown) {
    if (!signal.aborted) throw thrown;
    throw new PodnetError("CANCELLED", "Interrupted", {
      details: { signal: Number(signal.reason) },
      cause: thrown,
    });
  }
}
