import { spawn } from "node:child_process";
import { once } from "node:events";
import { pipeline } from "node:stream/promises";
import { performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";

/** Characters of its messages that are kept. */
const mostSaid = 4096;

/**
 * Runs a program, passes bytes to its standard input, and waits for its end. What fails first ends
 * the other: an error of `bytes` kills the program, and the program's end stops the reading.
 *
 * Throws what `bytes` throws; `COMMAND_FAILED` when the program is not installed or fails (details:
 * `argv`, `stderr`); `CANCELLED` when `signal` aborts.
 */
export async function feed(
  [name, ...args]: readonly [string, ...string[]],
  bytes: AsyncIterable<Uint8Array>,
  signal?: AbortSignal,
): Promise<void> {
  const argv = [name, ...args].join(" ");
  await performAsync("command", name, async () => {
    const child = spawn(name, args, {
      stdio: ["pipe", "ignore", "pipe"],
      env: { ...process.env, LC_ALL: "C" },
    });
    let said = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      said = (said + text).slice(-mostSaid);
    });
    const ended = once(child, "close") as Promise<[number | null, string | null]>;
    ended.catch(() => {});
    const fed = pipeline(bytes, child.stdin, signal === undefined ? {} : { signal });
    try {
      await fed;
    } catch (thrown) {
      // It may have ended by itself, which is why it takes no more.
      const isItsEnd = isErrno(thrown, "EPIPE") || isErrno(thrown, "ERR_STREAM_PREMATURE_CLOSE");
      if (!isItsEnd) {
        child.kill("SIGKILL");
        await ended.catch(() => {});
        if (signal?.aborted === true)
          throw new PodnetError("CANCELLED", `"${name}" was ended: the caller gave up`, {
            details: { argv },
            cause: thrown,
          });
        throw thrown;
      }
    }
    const [code, killed] = await ended.catch((cause: unknown) => {
      throw new PodnetError("COMMAND_FAILED", `The command "${name}" is not installed`, {
        hint: `Install the package that holds ${name}`,
        details: { argv },
        cause,
      });
    });
    if (code === 0) return;
    const last = printable(said.trim().split("\n").at(-1) ?? "");
    throw new PodnetError(
      "COMMAND_FAILED",
      `"${name}" failed with ${code === null ? killed : `exit code ${code}`}: ${last}`,
      { details: { argv, stderr: said } },
    );
  });
}

const isErrno = (thrown: unknown, code: string): boolean =>
  thrown instanceof Error && "code" in thrown && thrown.code === code;
