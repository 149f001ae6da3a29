import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { perform, performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { findLauncher } from "../jail/launcher.ts";
import { networkProgramArgv } from "../jail/argv.ts";
import { readReport } from "../jail/report.ts";
import { firstInheritedFd, hasStarted, launcherMissing, spawnStrictly } from "./process.ts";

/** A program without capabilities, which shares the host's network. */
export interface NetworkProgramStart {
  /** Its command line; paths in it are relative to the directory, where it may write. */
  readonly argv: readonly [string, ...string[]];
  readonly directory: string;
  /** The file in the directory that takes its output. */
  readonly log: string;
  /** How it is confined; undefined runs it as podnetd's own user. */
  readonly jail:
    | { readonly uid: number; readonly files: readonly string[]; readonly openFiles: number }
    | undefined;
}

/**
 * Starts a program in a session of its own, which outlives podnetd; resolves when it is executed.
 * `ended` resolves with the way it ended. Throws `JAIL_FAILED` when it cannot be shut in.
 */
export async function startNetworkProgram({
  argv,
  directory,
  log,
  jail,
}: NetworkProgramStart): Promise<{ readonly ended: Promise<string> }> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW;
  const output = perform("file", `make ${log}`, () => openSync(join(directory, log), flags, 0o600));
  const place = { launcher: findLauncher(), runDir: directory, reportFd: firstInheritedFd };
  const before = jail === undefined ? [] : networkProgramArgv({ ...place, ...jail });
  const [program = "", ...args] = [...before, ...argv];
  const { promise: ended, resolve } = Promise.withResolvers<string>();
  try {
    await performAsync("spawn", "relay", async () => {
      const child = spawnStrictly(program, args, {
        cwd: directory,
        detached: true,
        stdio: ["ignore", output, output, ...(jail === undefined ? [] : (["pipe"] as const))],
        env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C" },
      });
      child.once("exit", (code, signal) => resolve(signal ?? `exit code ${code}`));
      child.unref();
      await hasStarted(child, program, launcherMissing);
      if (jail !== undefined) await executed(child.stdio[firstInheritedFd] as Readable);
    });
  } finally {
    closeSync(output);
  }
  return { ended };
}

async function executed(report: Readable): Promise<void> {
  const { ready, error = "it reported no error" } = await readReport(report);
  if (ready) return;
  throw new PodnetError("JAIL_FAILED", `The relay cannot be confined: ${error}`, {
    hint: "See docs/how-to/confinement.md",
    details: { error },
  });
}
