import { PodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import type { JsonObject } from "../protocol/json.ts";
import type { CniCommand } from "../protocol/request.ts";
import type { ListedPlugin, PluginList } from "./list.ts";

/** The sandbox for which a list of plugins runs. */
export interface Sandbox {
  readonly containerId: string;
  /** Path of its network namespace; absent when it is gone, which only DEL bears. */
  readonly netns?: string;
  readonly ifName: IfName;
  /** `CNI_ARGS`. */
  readonly args: Readonly<Record<string, string>>;
  /** The value of each capability, for plugins that declare it: `portMappings`, `bandwidth`, … */
  readonly capabilities: JsonObject;
}

/**
 * One plugin's configuration: its own of the list, with what the runtime adds. `prevResult` is the
 * answer of the plugin before it (ADD) or of the last (DEL, CHECK).
 */
export function deriveConfig(
  list: PluginList,
  plugin: ListedPlugin,
  capabilities: JsonObject,
  prevResult: JsonObject | undefined,
): string {
  const runtimeConfig = Object.fromEntries(
    Object.entries(capabilities).filter(([name]) => plugin.capabilities.has(name)),
  );
  return JSON.stringify({
    ...plugin.config,
    name: list.name,
    cniVersion: list.version,
    ...(Object.keys(runtimeConfig).length === 0 ? {} : { runtimeConfig }),
    ...(prevResult === undefined ? {} : { prevResult }),
  });
}

/**
 * The variables that a plugin is run with; all of them, for those of podnetd's own surroundings
 * would count otherwise.
 */
export function environmentOf(
  command: CniCommand,
  directories: readonly string[],
  sandbox: Sandbox,
): Readonly<Record<string, string>> {
  return {
    CNI_COMMAND: command,
    CNI_PATH: directories.join(":"),
    CNI_CONTAINERID: sandbox.containerId,
    CNI_NETNS: sandbox.netns ?? "",
    CNI_IFNAME: sandbox.ifName,
    CNI_ARGS: argsText(sandbox.args),
  };
}

function argsText(args: Readonly<Record<string, string>>): string {
  for (const [name, value] of Object.entries(args)) {
    if (!/[;=]/.test(name) && !value.includes(";")) continue;
    throw new PodnetError(
      "INVALID_ARGUMENT",
      "An argument for CNI plugins has a sign that ends it",
      {
        field: "args",
        hint: "Leave = and ; out of names and ; out of values",
      },
    );
  }
  return Object.entries(args)
    .map(([name, value]) => `${name}=${value}`)
    .join(";");
}
