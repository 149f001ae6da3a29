import { once } from "node:events";
import path from "node:path";
import { createInterface } from "node:readline";
import { run } from "../../../linux/processes/command.ts";
import type { Machine } from "../../../test/lab/lab.ts";

/** One plugin of a call, with its configuration. */
export interface Plugin {
  readonly program: string;
  readonly config: Readonly<Record<string, unknown>>;
}

/** What a runtime asks plugins for, one after the other. */
export interface Call {
  readonly command: "ADD" | "DEL" | "VERSION";
  readonly container: string;
  readonly netns: string;
  /** Where plugins find further ones. */
  readonly pluginPath: string;
  /** Waits until the host has no such link. */
  readonly link?: string;
  readonly plugins: readonly Plugin[];
}

/** What a call took, milliseconds. */
export interface Took {
  readonly ms: number;
  /** When it began, by CLOCK_MONOTONIC. */
  readonly beganMs: number;
  /** Of the programs, and of all that they started and waited for. */
  readonly cpuMs: number;
  /** From the call to the end of its link. */
  readonly goneMs: number;
  readonly stdout: string;
}

/** Runs plugins on a machine: see runner.c. */
export interface Runner extends AsyncDisposable {
  /** So many at once. In the calls' order; rejects when one of them failed. */
  run(slots: number, calls: readonly Call[]): Promise<{ took: Took[]; elapsedMs: number }>;
}

/** Compiles what measures, into a directory; answers the programs' paths. */
export async function buildRunner(directory: string): Promise<{ runner: string; hello: string }> {
  return { runner: await built(directory, "runner"), hello: await builtStatic(directory, "hello") };
}

/** Compiles the plugin that does the least (floor.c), into a directory; answers its path. */
export const buildFloor = (directory: string): Promise<string> => builtStatic(directory, "floor");

const builtStatic = (directory: string, name: string): Promise<string> =>
  built(directory, name, "-static");

async function built(directory: string, name: string, ...flags: string[]): Promise<string> {
  const source = path.join(import.meta.dirname, `${name}.c`);
  const program = path.join(directory, name);
  await run(["cc", "-O2", "-Wall", "-Werror", ...flags, "-o", program, source]);
  return program;
}

export async function openRunner(machine: Machine, program: string): Promise<Runner> {
  const child = machine.spawn([program], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(child, "exit");
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error("The runner has no pipes");
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string[]> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("The runner has ended");
    return value.split("\t");
  };
  return {
    async run(slots, calls) {
      stdin.write([`${slots} ${calls.length}`, ...calls.map(lineOf), ""].join("\n"));
      const took: Took[] = [];
      for (;;) {
        const [first, ms, cpu, gone, exit, began, text = ""] = await next();
        if (first === "done") return { took, elapsedMs: Number(ms) / 1000 };
        const call = calls[Number(first)] as Call;
        if (exit !== "0") throw new Error(`${call.command} of ${call.container} failed: ${text}`);
        const [tookMs, cpuMs, goneMs, beganMs] = [ms, cpu, gone, began].map(
          (microseconds) => Number(microseconds) / 1000,
        ) as [number, number, number, number];
        took[Number(first)] = { ms: tookMs, beganMs, cpuMs, goneMs, stdout: text };
      }
    },
    async [Symbol.asyncDispose]() {
      stdin.end();
      await ended;
    },
  };
}

const lineOf = ({ command, container, netns, pluginPath, link = "", plugins }: Call): string =>
  [
    command,
    container,
    netns,
    pluginPath,
    link,
    ...plugins.flatMap(({ program, config }) => [program, JSON.stringify(config)]),
  ].join("\t");
