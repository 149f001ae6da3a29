/** Lists of plugins as libcni runs them: podnet's own alongside Debian's. */
import path from "node:path";
import { unpacked } from "../lab/container-host.ts";
import type { Machine } from "../lab/lab.ts";
import type { CniRig } from "./cni-rig.ts";
import { type PluginEnd, pluginProgram, runPlugin } from "./run-plugin.ts";

export const debian = path.join(unpacked, "usr/lib/cni");

export type Plugin = Readonly<Record<string, unknown>> & { readonly type: string };

/** Runs one plugin of a list on the host, as libcni does. */
export function callPlugin(
  cni: CniRig,
  command: string,
  plugin: Plugin,
  container: Machine,
  more: object,
): Promise<PluginEnd> {
  const own = plugin.type === "podnet-cni";
  const { host } = cni.rig.lab;
  const env = [
    `CNI_COMMAND=${command}`,
    `CNI_CONTAINERID=${container.name}`,
    `CNI_NETNS=${container.path}`,
    "CNI_IFNAME=eth0",
    `CNI_PATH=${debian}:${path.dirname(pluginProgram)}`,
    `PATH=${process.env["PATH"]}`,
  ];
  const config = { cniVersion: "1.0.0", name: "chain", ...plugin, ...more };
  const stdin = JSON.stringify(own ? { ...config, socket: cni.socket } : config);
  return runPlugin(env, stdin, own ? undefined : { on: host, program: `${debian}/${plugin.type}` });
}

export interface Chained {
  /** Of each plugin that was run; the last may have failed. */
  readonly ends: readonly PluginEnd[];
  // oxlint-disable-next-line typescript/no-explicit-any -- each test says what it looks for
  readonly result: any;
}

/** ADD down the list, up to the first plugin that fails. */
export async function addList(
  cni: CniRig,
  list: readonly Plugin[],
  container: Machine,
): Promise<Chained> {
  const ends: PluginEnd[] = [];
  for (const plugin of list) {
    const before = ends.at(-1)?.json;
    ends.push(
      await callPlugin(cni, "ADD", plugin, container, before ? { prevResult: before } : {}),
    );
    if (ends.at(-1)?.exit !== 0) break;
  }
  return { ends, result: ends.at(-1)?.json };
}

/** DEL in reverse, with the final result where there is one. */
export async function deleteList(
  cni: CniRig,
  list: readonly Plugin[],
  container: Machine,
  result?: object,
): Promise<void> {
  for (const plugin of list.toReversed()) {
    const { exit, stdout } = await callPlugin(
      cni,
      "DEL",
      plugin,
      container,
      result ? { prevResult: result } : {},
    );
    if (exit !== 0) throw new Error(`DEL by ${plugin.type}: ${stdout}`);
  }
}
