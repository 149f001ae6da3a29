import { parseConflist } from "../../../cni/runtime/list.ts";
import {
  addList,
  checkList,
  deleteList,
  isChecked,
  type ListCall,
  type PluginHost,
} from "../../../cni/runtime/run-list.ts";
import type { JsonObject } from "../../../cni/protocol/json.ts";
import { parseResult } from "../../../cni/protocol/result-read.ts";
import { isIp, parseIp } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import { encodeUtf8 } from "../../../core/utf8.ts";
import type { GuestDns } from "../../../guest-init/protocol/configure.ts";
import { makeNamespace, removeNamespace } from "../../../linux/namespaces/named-namespace.ts";
import { NetworkNamespace } from "../../../linux/namespaces/namespace.ts";
import {
  type JoinDesired,
  joinNamespace,
  type Joined,
  leaveNamespace,
} from "../../../network/tc-redirect/redirect.ts";
import { inspectJoin } from "../../../network/tc-redirect/repair.ts";
import {
  type Inspection,
  type InspectOptions,
  nothingFound,
} from "../../../network/bridge/inspect.ts";
import type { RuntimeSettings } from "../../config/cni.ts";
import { KeyedLock } from "../../reconcile/keyed-lock.ts";
import type { CniPlan, SandboxPlan } from "./cni-plan.ts";
import type { PluginCalls } from "./plugin-calls.ts";

/** Links in podnet's own sandboxes and in foreign namespaces, as far as pods need them. */
export interface Sandboxes {
  /**
   * Makes the namespace and has the plugins set it up; returns the last plugin's result, as it
   * wrote it. After a failure all of it is undone.
   */
  add(cni: SandboxedPlan, signal: AbortSignal): Promise<JsonObject>;
  join(desired: JoinDesired, signal: AbortSignal): Promise<Joined>;
  /**
   * Looks at a join, and heals it if asked to. `now` is called when nothing else is done in the
   * namespace; it answers undefined when its machine has nothing to do with it any more.
   */
  inspect(
    netns: string,
    now: () => JoinDesired | undefined,
    heal: InspectOptions["heal"],
    signal: AbortSignal,
  ): Promise<Inspection>;
  /** Absent is success. */
  leave(desired: JoinDesired): Promise<void>;
  /**
   * Asks the plugins whether all is as their ADD left it, once nothing else is asked of them; false
   * where they are not to be asked. `now` answers undefined when they have set nothing up by then.
   * Throws the first one's complaint.
   */
  check(
    containerId: string,
    now: () => SandboxedPlan | undefined,
    signal: AbortSignal,
  ): Promise<boolean>;
  /** Calls the plugins' DEL, and removes the namespace. Absent is success. */
  release(cni: SandboxedPlan): Promise<void>;
  /** Removes podnet's own namespace with its contents. Absent is success. */
  remove(netns: string): void;
}

export type SandboxedPlan = CniPlan & { readonly sandbox: SandboxPlan };

/** Sandboxes in the kernel, with plugins that lie where the settings say. */
export const openSandboxes = (
  settings: RuntimeSettings,
  /**
   * Calls of plugins, which take longer than changes of their links and have locks of their own.
   */
  calls: PluginCalls,
  /** By the path of a namespace. */
  turns = new KeyedLock<string>(),
): Sandboxes => ({
  add: (cni, signal) =>
    calls.run(cni.sandbox.containerId, async (started) => {
      makeNamespace(cni.netns);
      const { written } = await addList({ ...callOf(cni, { ...settings, started }), signal });
      return written;
    }),
  join: (desired, signal) => turns.run(desired.netns, () => joinNamespace(desired, signal)),
  inspect: (netns, now, heal, signal) =>
    turns.run(netns, async () => {
      const desired = now();
      return desired === undefined ? nothingFound : inspectJoin(desired, heal, signal);
    }),
  leave: (desired) => turns.run(desired.netns, () => leaveNamespace(desired)),
  check: (containerId, now, signal) =>
    calls.run(containerId, async (started) => {
      const cni = now();
      if (cni?.sandbox.result === undefined) return false;
      const call = callOf(cni, { ...settings, started });
      await checkList({ ...call, signal }, cni.sandbox.result);
      return isChecked(call.list);
    }),
  release: (cni) =>
    calls.run(cni.sandbox.containerId, async (started) => {
      const { sandbox, ...call } = callOf(cni, { ...settings, started });
      const { netns: _gone, ...without } = sandbox;
      const there = isThere(cni.netns);
      await deleteList({ ...call, sandbox: there ? sandbox : without }, cni.sandbox.result);
      removeNamespace(cni.netns);
    }),
  remove: (netns) => removeNamespace(netns),
});

function callOf({ netns, link, sandbox }: SandboxedPlan, host: PluginHost): ListCall {
  const { containerId, list, args, capabilities } = sandbox;
  return {
    host,
    list: parseConflist(encodeUtf8(JSON.stringify(list))),
    sandbox: { containerId, netns, ifName: link, args, capabilities },
  };
}

/**
 * The name servers that a sandbox's plugins name; undefined if none. Host names of servers, which
 * CNI allows and resolv.conf does not, and addresses with a zone of the host are left out.
 */
export function dnsOf({ list, result }: SandboxPlan): GuestDns | undefined {
  if (result === undefined) return undefined;
  const { version } = parseConflist(encodeUtf8(JSON.stringify(list)));
  const { nameservers, domain, search, options } = parseResult(result, version).dns;
  const servers = nameservers.flatMap((text) => (isIp(text) ? [parseIp(text)] : []));
  if (servers.length === 0) return undefined;
  return {
    servers,
    search: [...new Set([...(domain === undefined ? [] : [domain]), ...search])],
    options,
  };
}

/** A restart of the host removes namespaces, and leaves what plugins wrote to disk. */
function isThere(netns: string): boolean {
  try {
    NetworkNamespace.open(netns)[Symbol.dispose]();
    return true;
  } catch (error) {
    if (isPodnetError(error, "NETNS_UNUSABLE")) return false;
    throw error;
  }
}
