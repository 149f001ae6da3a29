import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { run } from "../../linux/processes/command.ts";
import type { VmPlan } from "../../hypervisor/driver.ts";
import { jailArgv } from "../../hypervisor/jail/argv.ts";
import { makeCgroups } from "../../hypervisor/jail/cgroup.ts";
import { findLauncher } from "../../hypervisor/jail/launcher.ts";
import { type JailReport, readReport } from "../../hypervisor/jail/report.ts";
import { removeRemains } from "../../hypervisor/process/remains.ts";
import { makeRunDir } from "../../hypervisor/process/run-dir.ts";

/** How a probe went. */
export interface Probed {
  /** By attempt: `ok`, or the error's text. */
  readonly results: Readonly<Record<string, string>>;
  /** Lines `seen PATH`. */
  readonly seen: readonly string[];
  readonly output: string;
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface JailedProbe {
  readonly report: JailReport;
  readonly ended: Promise<Probed>;
}

/** Builds the probe, a static program. */
export async function buildProbe(): Promise<string> {
  const probe = join(mkdtempSync(join(tmpdir(), "podnet-probe-")), "jail-probe");
  const headers = ["/usr/include", "/usr/include/x86_64-linux-gnu"];
  const flags = ["-static", "-Os", "-Wall", "-Wextra", "-Werror", "-std=gnu11"];
  const include = headers.flatMap((path) => ["-idirafter", path]);
  const source = join(import.meta.dirname, "jail-probe.c");
  await run(["musl-gcc", ...flags, ...include, source, "-o", probe]);
  return probe;
}

/** Runs the probe as it is, outside of any jail. */
export function probeOutside(probe: string, attempts: readonly string[]): Promise<Probed> {
  const child = spawn(probe, attempts, { stdio: ["ignore", "pipe", "inherit"] });
  return outcome(child, child.stdout);
}

/**
 * Runs the probe in QEMU's place, in the jail of a plan; `through` is a command that starts the
 * launcher.
 */
export async function probeInside(
  plan: VmPlan,
  probe: string,
  attempts: readonly string[],
  through: readonly string[] = [],
): Promise<JailedProbe> {
  await makeRunDir(plan);
  makeCgroups(plan.jail?.cgroups ?? []);
  const host = { launcher: findLauncher(), reportFd: 3, accelerator: "tcg" } as const;
  const [program = "", ...words] = [...through, ...jailArgv(plan, host), probe, ...attempts];
  const child = spawn(program, words, {
    stdio: ["ignore", "pipe", "inherit", "pipe"],
    cwd: plan.runDir,
  });
  const ended = cleared(plan, outcome(child, child.stdout as Readable));
  return { report: await readReport(child.stdio[3] as Readable), ended };
}

async function cleared(plan: VmPlan, probed: Promise<Probed>): Promise<Probed> {
  try {
    return await probed;
  } finally {
    await removeRemains(plan);
  }
}

async function outcome(child: ReturnType<typeof spawn>, stdout: Readable): Promise<Probed> {
  let output = "";
  stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const { promise, resolve } = Promise.withResolvers<Omit<Probed, "results" | "seen" | "output">>();
  child.once("close", (code, signal) => resolve({ code, signal }));
  const end = await promise;
  const lines = output.split("\n");
  const results = lines.flatMap((line) => {
    const match = /^(\S+): (.*)$/.exec(line);
    return match === null ? [] : [[match[1] ?? "", match[2] ?? ""] as const];
  });
  const seen = lines.filter((line) => line.startsWith("seen ")).map((line) => line.slice(5));
  return { results: Object.fromEntries(results), seen, output, ...end };
}
