import {
  type ChildProcessWithoutNullStreams,
  spawn,
  type SpawnOptionsWithoutStdio,
} from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { text } from "node:stream/consumers";
import type { Machine } from "../lab/lab.ts";

export const pluginProgram = path.resolve(import.meta.dirname, "../../build/cni-plugin/podnet-cni");

/** How the plugin ended. */
export interface PluginEnd {
  /** Null where a signal ended it. */
  readonly exit: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** `stdout`, where there is any. */
  // oxlint-disable-next-line typescript/no-explicit-any -- each test says what it looks for
  readonly json: any;
}

/** Another program than podnet's plugin, and the machine that it runs on. */
export interface OtherPlugin {
  readonly on: Machine;
  readonly program: string;
}

/**
 * Runs the plugin itself, as a runtime does, with these variables alone, `NAME=value` each, in this
 * order.
 */
export async function runPlugin(
  env: readonly string[],
  stdin: string | Uint8Array,
  other?: OtherPlugin,
): Promise<PluginEnd> {
  // (An object keeps the order in which its members were made.)
  const variables = Object.fromEntries(
    env.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]),
  );
  const options: SpawnOptionsWithoutStdio = { env: variables, stdio: "pipe", timeout: 90_000 };
  const child = (
    other === undefined
      ? spawn(pluginProgram, [], options)
      : other.on.spawn([other.program], options)
  ) as ChildProcessWithoutNullStreams;
  child.stdin.on("error", () => {});
  child.stdin.end(stdin);
  const [stdout, stderr, [exit]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "close") as Promise<[number | null]>,
  ]);
  return { exit, stdout, stderr, json: stdout === "" ? undefined : JSON.parse(stdout) };
}
