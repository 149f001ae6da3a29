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
  /** Where the list was read. */
  readonly file: string;
  /** As it was then: DEL is asked with the same, whatever has become of the file. */
  readonly list: JsonObject;
  readonly args: Readonly<Record<string, string>>;
  readonly capabilities: JsonObject;
  /** What the last plugin answered. Absent while ADD has not come to its end. */
  readonly result?: JsonObject;
  /** Everything has been taken back, and no ADD has begun since. */
  readonly released?: true;
}

export interface TakenPlan {
  /** The link asks for no MACs. */
  readonly noArp?: true;
  readonly routes: readonly GuestRoute[];
  readonly neighbours: readonly GuestNeighbour[];
  /** Whom the plugins name as name servers; absent where they name none. */
  readonly dns?: GuestDns;
}

/** What of the world the planner knows for such interfaces. */
export interface PlannedSandbox {
  readonly netnsDir: string;
  /** The list of plugins by the name that is asked for; the empty one is the first that is good. */
  readonly lists: Readonly<Record<string, FoundSandbox>>;
  /** Of files that were looked at on the way and are no good, which and why. */
  readonly passedOver: readonly string[];
}

export interface FoundSandbox {
  readonly file: string;
  readonly list: JsonObject;
}
