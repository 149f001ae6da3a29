import path from "node:path";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { parseIfName } from "../../core/names.ts";
import type { JsonObject } from "../protocol/json.ts";
import type { CniCommand } from "../protocol/request.ts";
import { atLeast } from "../protocol/version.ts";
import { parseAnswer, type PluginResult } from "./answer.ts";
import { deriveConfig, environmentOf, type Sandbox } from "./derive.ts";
import type { ListedPlugin, PluginList } from "./list.ts";
import { runPlugin } from "./run-plugin.ts";

/** How plugins are run. */
export interface PluginHost {
  /** Where all plugins lie, `/opt/cni/bin`. */
  readonly directories: readonly string[];
  /**
   * Below it each vendor has a directory of his own, which is looked into first: `/opt` for
   * `/opt/TYPE/bin`.
   */
  readonly vendors: string;
  /** Longest that one plugin may take. */
  readonly timeoutMs: number;
  /** Notified of each plugin's process in the moment it begins. */
  readonly started?: (pid: number) => void;
}

/**
 * A list and the sandbox it runs for. The caller makes sure that no other operation runs on the
 * sandbox meanwhile.
 */
export interface ListCall {
  readonly host: PluginHost;
  readonly list: PluginList;
  readonly sandbox: Sandbox;
  readonly signal?: AbortSignal;
}

const loopbackPlugin: ListedPlugin = {
  type: "loopback",
  capabilities: new Set(),
  config: { type: "loopback" },
};
/**
 * The list that every runtime runs before any other: without it the sandbox cannot reach itself.
 */
const loopback: PluginList = {
  version: "0.3.1",
  name: "cni-loopback",
  plugins: [loopbackPlugin],
  disableCheck: true,
  inlinedOnly: true,
};

const loopbackOf = (call: ListCall): ListCall => ({
  ...call,
  list: loopback,
  sandbox: { ...call.sandbox, ifName: parseIfName("lo"), capabilities: {} },
});

/**
 * Attaches the sandbox: the loopback plugin, then the list from first to last; each plugin receives
 * the result of the one before it. Returns the last one's result. Before it throws an error, it
 * runs DEL for the whole list.
 */
export async function addList(call: ListCall): Promise<PluginResult> {
  let result: PluginResult | undefined;
  try {
    await ask(loopbackOf(call), "ADD", loopbackPlugin);
    for (const plugin of call.list.plugins)
      result = parseAnswer(await ask(call, "ADD", plugin, result?.written), call.list.version);
    if (result !== undefined) return result;
    throw new PodnetError("CONFIG_INVALID", `The list ${call.list.name} has no plugins`, {
      hint: "Write at least one plugin with a type",
    });
  } catch (thrown) {
    // The rollback ignores the signal that ended the ADD, a deadline or a cancelled request: each
    // plugin has its own time.
    const { host, list, sandbox } = call;
    const error = toPodnetError(thrown);
    try {
      await takeBack({ host, list, sandbox }, result?.written, true);
    } catch (left) {
      throw error.with({ details: { undo: toPodnetError(left).message } });
    }
    throw error;
  }
}

/**
 * Detaches the sandbox: the list from last to first, with the result of the last ADD where there
 * was one, then loopback. Idempotent. The first error ends it, as CNI's specification says: if the
 * next plugin released an address, a remaining rule could lead to the address's next holder.
 * Without a completed ADD the container was never reachable, and plugins that the ADD did not get
 * to may be missing: then all plugins run, and the first error is thrown at the end.
 */
export const deleteList = (call: ListCall, prevResult?: JsonObject): Promise<void> =>
  takeBack(call, prevResult, prevResult === undefined);

async function takeBack(
  call: ListCall,
  prevResult: JsonObject | undefined,
  goesOn: boolean,
): Promise<void> {
  const errors: PodnetError[] = [];
  const reported = atLeast(call.list.version, "0.4.0") ? prevResult : undefined;
  for (const plugin of call.list.plugins.toReversed())
    await ask(call, "DEL", plugin, reported).catch((thrown: unknown) => {
      if (!goesOn) throw thrown;
      errors.push(toPodnetError(thrown));
    });
  // Of a namespace that is gone its loopback is gone too.
  if (call.sandbox.netns !== undefined)
    await ask(loopbackOf(call), "DEL", loopbackPlugin).catch((thrown) =>
      errors.push(toPodnetError(thrown)),
    );
  const [first] = errors;
  if (first !== undefined) throw first;
}

/** Whether CHECK runs: not when the list disables it, nor in versions without CHECK. */
export const isChecked = ({ disableCheck, version }: PluginList): boolean =>
  !disableCheck && atLeast(version, "0.4.0");

/** Runs CHECK of each plugin, unless it is disabled; throws the first error. */
export async function checkList(call: ListCall, prevResult: JsonObject): Promise<void> {
  if (!isChecked(call.list)) return;
  for (const plugin of call.list.plugins) await ask(call, "CHECK", plugin, prevResult);
}

const ask = (
  { host, list, sandbox, signal }: ListCall,
  command: CniCommand,
  plugin: ListedPlugin,
  prevResult?: JsonObject,
): Promise<string> => {
  const directories = [path.join(host.vendors, plugin.type, "bin"), ...host.directories];
  return runPlugin({
    type: plugin.type,
    command,
    directories,
    env: environmentOf(command, directories, sandbox),
    config: deriveConfig(list, plugin, sandbox.capabilities, prevResult),
    timeoutMs: host.timeoutMs,
    signal,
    started: host.started,
  });
};
