import type { PodnetError } from "../../core/errors.ts";
import type { FirewallName } from "../firewall/open.ts";
import type { PolicyOf } from "../firewall/policed.ts";
import type { HostKernel } from "../kernel/kernel.ts";
import type { Remembered } from "../kernel/memory.ts";
import type { Change } from "../model/change.ts";
import type { Fragment, PluggedFragment, PublishedDesired } from "../model/desired.ts";
import type { ServiceDesired } from "../model/service.ts";
import type { Variant } from "../model/rules.ts";
import type { Inspection, InspectOptions } from "./inspect.ts";
import type { HealRules } from "./inspect-rules.ts";
import type { HostObservations } from "./observations.ts";
import type { OverlayRules } from "./overlay-rules.ts";
import type { Removal } from "./removal.ts";

export interface HostNetworkOptions {
  /** `iptables_variant`; `off` (`disable_iptables`) runs no firewall command at all. */
  readonly iptables: "auto" | Variant | "off";
  /** The driver that writes rules, if rules are enabled. Default: `iptables`. */
  readonly firewall?: FirewallName;
  /** `iptables_chain`, already parsed with `parseChainName`. */
  readonly chain: string;
  /** The value that an earlier run passed to `remember`. Void if it is of another boot. */
  readonly remembered?: Remembered | undefined;
  /** Stores the records before the change is made. Synchronous; may throw to prevent the change. */
  readonly remember?: (value: Remembered) => void;
  /** The seed of bridges' MACs. Default: the machine's id. */
  readonly hostSeed?: string;
  /** What decides about the flows of a pod or container. Default: no policy does. */
  readonly policyOf?: PolicyOf;
  /** The port of this host at which the relay reads the names of connections. */
  readonly relayPort?: number;
  /** The kernel to observe and change. Default: the real one. */
  readonly kernel?: HostKernel;
  /** Called when rules are compared and written once more; a second failure is thrown. */
  readonly repeated?: (failure: PodnetError) => void;
}

/** Desired state of a part of the host. */
export type Desired =
  | Fragment
  | RunningPods
  | PolicyChange
  | Learning
  | ServiceChange
  | PublishedChange;

/**
 * What a pod publishes has changed: its rules for that are made, and the settings of ports that
 * depend on it. All else of the pod is as it was, and is not looked at.
 */
interface PublishedChange {
  readonly kind: "published";
  readonly pod: PluggedFragment;
  /** What it had published before. */
  readonly had: readonly PublishedDesired[];
}

/**
 * The rules of these pods' and containers' policies as they are now, in one transaction, and no
 * other rules. Existing flows that are not allowed any more end. `now` is called when it is this
 * change's turn: what is added or removed meanwhile neither lacks its rules nor leaves some.
 */
interface PolicyChange {
  readonly kind: "policies";
  readonly now: () => readonly PluggedFragment[];
}

/**
 * The rules of these services, and of no others, in one transaction; then the settings of those of
 * the pods' ports that depend on them. Both functions are called when it is this change's turn.
 */
export interface ServiceChange {
  readonly kind: "services";
  readonly now: () => readonly ServiceDesired[];
  /** Pods and containers of the host. */
  readonly pods: () => readonly PluggedFragment[];
}

/** The connections of this pod are noted, of no other; without a pod none are. */
interface Learning {
  readonly kind: "learning";
  readonly pod: PluggedFragment | undefined;
}

/**
 * At podnetd's start, before anything else: all that these pods send and receive by, so that their
 * traffic never stops. Their ports are guarded in one transaction with the rules of a table that an
 * earlier podnetd did not have, or had otherwise. After the firewall's driver was changed, what
 * they publish gets the new driver's rules; what cannot be written is left to the next `apply` of
 * the pod, which says why, and the other driver's rules stay until orphans are removed.
 */
interface RunningPods {
  readonly kind: "running-pods";
  readonly pods: readonly PluggedFragment[];
}

/**
 * The host's network as podnet sees it: the one way the kernel is changed. Changes are made one
 * call at a time.
 */
export interface HostNetwork extends AsyncDisposable {
  /**
   * Observes a part of the host and makes it as desired. Returns the changes made; none when it was
   * so already. Stops at the first failure: what is done stays, and `remove` or another `apply`
   * deals with it. Only where a foreign bridge is missing, all but the ports on it is done first.
   *
   * Throws `BRIDGE_CONFLICT`, `BRIDGE_FULL`, `CHAIN_CONFLICT`,
   * `FIREWALL_FAILED`, `NAME_IN_USE`, `NETLINK_FAILED`, `SYSCALL_FAILED`, `CANCELLED`.
   */
  apply(desired: Desired, signal: AbortSignal): Promise<readonly Change[]>;
  /** The changes that `apply` would make now: the drift. Throws as `apply` does. */
  diff(fragment: Fragment, signal: AbortSignal): Promise<readonly Change[]>;
  /**
   * The desired state as text, without a look at the host; with `before`, the rules that differ
   * from those of `before`.
   */
  describe(fragment: Fragment): readonly string[];
  describe(fragment: PluggedFragment, before: PluggedFragment): readonly string[];
  /**
   * Looks for drift, and repairs it if requested. `now` is called when this look starts, so that
   * earlier calls are done; it returns undefined if the object no longer exists.
   */
  inspect(
    now: () => Fragment | undefined,
    options: InspectOptions,
    signal: AbortSignal,
  ): Promise<Inspection>;
  /**
   * Looks for drift of the rules of all pods that `now` returns when it is this look's turn, and
   * repairs what it is asked to. Returns the outcome for each pod whose rules were not as planned.
   * Throws `FIREWALL_FAILED`, `CANCELLED`.
   */
  inspectRules(
    now: () => readonly PluggedFragment[],
    heal: HealRules,
    signal: AbortSignal,
  ): Promise<ReadonlyMap<PluggedFragment, Inspection>>;
  /** Looks for drift of the rules of services, and repairs it if requested, as `inspect` does. */
  inspectServices(
    now: () => readonly ServiceDesired[],
    heal: InspectOptions["heal"],
    signal: AbortSignal,
  ): Promise<Inspection>;
  /** The desired rules of a service as text, without a look at the host. */
  describeService(service: ServiceDesired): readonly string[];
  /**
   * Removes what an owner has of the host, or a part of it. Absence is success, and what bears no
   * mark is never touched. Goes on past failures and throws the first of them, with the others as
   * its cause.
   */
  remove(target: Removal, signal: AbortSignal): Promise<readonly Change[]>;
  /** Observes the host, without changes. */
  readonly observe: HostObservations;
  /** Rules of overlays, in turn with all others; for `Overlays`. */
  readonly overlayRules: OverlayRules;
  /** The records needed to revert our changes: the value last passed to `remember`. */
  readonly remembered: Remembered;
}
