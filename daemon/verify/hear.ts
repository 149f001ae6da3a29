import path from "node:path";
import { run } from "../../linux/command.ts";

const witnessTimeoutMs = 10_000;

/** What a witness prints. Throws `COMMAND_FAILED` or `DEADLINE_EXCEEDED` when it cannot speak. */
export async function hear(
  program: string,
  args: readonly string[],
  signal: AbortSignal | undefined,
  stdin?: string,
): Promise<string> {
  const file = path.join(import.meta.dirname, program);
  // The packages warn of what they use of Node's; that is no finding.
  const { stdout } = await run([process.execPath, "--no-warnings", file, ...args], {
    timeoutMs: witnessTimeoutMs,
    ...(signal === undefined ? {} : { signal }),
    ...(stdin === undefined ? {} : { stdin }),
  });
  return stdout;
}
