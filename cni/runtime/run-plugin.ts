import { accessSync, constants } from "node:fs";
import path from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { run } from "../../linux/processes/command.ts";
import type { CniCommand } from "../protocol/request.ts";
import { parsePluginError } from "./answer.ts";

/** Characters that a plugin may print; no result comes near. */
const outputLimit = 1024 * 1024;

export interface PluginRun {
  readonly type: string;
  readonly command: CniCommand;
  /** Where plugins lie; the first that has it wins. */
  readonly directories: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly config: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly started?: ((pid: number) => void) | undefined;
}

/**
 * Runs a plugin to its end and gives what it printed. Throws `COMMAND_FAILED` when it is not there,
 * or says that it failed (details: `plugin`, `command`, and `number`, CNI's of its error);
 * `DEADLINE_EXCEEDED`, `CANCELLED` as every command.
 */
export async function runPlugin(asked: PluginRun): Promise<string> {
  const { type, command, env, config, timeoutMs, signal, started } = asked;
  const { stdout, stderr, exitCode } = await run([programOf(asked)], {
    stdin: config,
    env,
    timeoutMs,
    maxOutput: outputLimit,
    okCodes: anyCode,
    ...(signal === undefined ? {} : { signal }),
    ...(started === undefined ? {} : { started }),
  });
  if (exitCode === 0) return stdout;
  const said = parsePluginError(stdout);
  const words = [said?.message ?? stderr.trim(), said?.details ?? ""].filter((text) => text !== "");
  throw new PodnetError(
    "COMMAND_FAILED",
    `The CNI plugin ${type} failed at ${command}: ${words.join("; ") || `exit code ${exitCode}`}`,
    {
      hint: "The plugin's message shows whether its configuration or the host is at fault",
      details: {
        plugin: type,
        command,
        exitCode,
        ...(said === undefined ? {} : { number: said.code }),
      },
    },
  );
}

/** A plugin that fails says why on standard output: no exit code is to keep that from us. */
const anyCode: readonly number[] = Array.from({ length: 256 }, (_, code) => code);

function programOf({ type, command, directories }: PluginRun): string {
  for (const directory of directories) {
    const program = path.join(directory, type);
    try {
      accessSync(program, constants.X_OK);
      return program;
    } catch {}
  }
  throw new PodnetError("COMMAND_FAILED", `The CNI plugin ${type} is not installed`, {
    hint: `Put it into ${directories.join(" or ")}`,
    details: { plugin: type, command },
  });
}
