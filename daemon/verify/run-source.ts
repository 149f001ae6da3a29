import path from "node:path";
import { run } from "../../linux/processes/command.ts";

const sourceTimeoutMs = 10_000;

/**
 * The output of an independent check, run in podnetd's own network namespace or the one at a path.
 * Throws `COMMAND_FAILED` or `DEADLINE_EXCEEDED` when it fails.
 */
export async function runSource(
  program: string,
  args: readonly string[],
  signal: AbortSignal | undefined,
  { stdin, netns }: { readonly stdin?: string; readonly netns?: string } = {},
): Promise<string> {
  const file = path.join(import.meta.dirname, program);
  // The packages make Node print warnings, which are not findings.
  const words = [process.execPath, "--no-warnings", file, ...args] as const;
  const { stdout } = await run(
    netns === undefined ? words : ["nsenter", `--net=${netns}`, ...words],
    {
      timeoutMs: sourceTimeoutMs,
      ...(signal === undefined ? {} : { signal }),
      ...(stdin === undefined ? {} : { stdin }),
    },
  );
  return stdout;
}
