import type { IfName } from "../../../core/names.ts";
import type { JsonObject } from "../../../cni/protocol/json.ts";
import type {
  GuestDns,
  GuestNeighbour,
  GuestRoute,
} from "../../../guest-init/protocol/configure.ts";

/**
 * The link of CNI plugins to which an interface is redirected. Plain JSON, a part of the pod's
 * plan.
 */
export interface CniPlan {
  /** Path of the network namespace. */
  readonly netns: string;
  readonly link: IfName;
  /** Absent for a foreign namespace, whose owner sets it up and takes it down. */
  readonly sandbox?: SandboxPlan;
  /** What the guest is sent because of the link, once the link is known; a stop forgets it. */
  readonly taken?: TakenPlan;
}

/** A namespace of podnet's own, and the plugins that set it up. */
export interface SandboxPlan {
  readonly containerId: string;
  /** The path of the list. */
  readonly file: string;
  /** The list as it was read: DEL uses it, whatever has become of the file. */
  readonly list: JsonObject;
  readonly args: Readonly<Record<string, string>>;
  readonly capabilities: JsonObject;
  /** The result of the last plugin. Absent until ADD has ended. */
  readonly result?: JsonObject;
  /** Everything has been taken back, and no ADD has begun since. */
  readonly released?: true;
}

export interface TakenPlan {
  /** The link asks for no MACs. */
  readonly noArp?: true;
  readonly routes: readonly GuestRoute[];
  readonly neighbours: readonly GuestNeighbour[];
  /** The name servers that the plugins name; absent where they name none. */
  readonly dns?: GuestDns;
}

/** The state of the host that the planner needs for such interfaces. */
export interface PlannedSandbox {
  readonly netnsDir: string;
  /** The list of plugins by the name that is asked for; the empty one is the first that is good. */
  readonly lists: Readonly<Record<string, FoundSandbox>>;
  /** Unusable files that were passed over in the search, with reasons. */
  readonly passedOver: readonly string[];
}

export interface FoundSandbox {
  readonly file: string;
  readonly list: JsonObject;
}
