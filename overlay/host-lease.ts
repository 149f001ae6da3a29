import type { Clock } from "../core/clock.ts";
import type { PodnetError } from "../core/errors.ts";
import type { Host } from "./claim.ts";
import type { OverlayConfig } from "./flannel/config.ts";
import type { Subnets } from "./flannel/key.ts";
import type { LeaseStatus } from "./lease-status.ts";
import type { OwnerId } from "./owner.ts";
import type { EntryChange, Registry } from "./registry.ts";

/** When a lease was renewed last and when it ends, milliseconds of the monotonic clock. */
interface LeaseTime {
  readonly renewedAt: number;
  readonly endsAt: number;
}

/** How this host's lease is, whoever manages the subnets. */
export interface HostLeaseState extends LeaseStatus {
  /** The overlay's configuration that is in force. */
  readonly config: OverlayConfig | undefined;
  /** The subnets that this host has, and the key by which its lease is known. */
  readonly own: { readonly key: string; readonly subnets: Subnets } | undefined;
  /** Whether all hosts were listed once. */
  readonly listed: boolean;
  /** Since when the manager has not been heard, milliseconds of the monotonic clock. */
  readonly staleSince: number | undefined;
  /** Whether the host is to leave, or has left. */
  readonly leaving: boolean;
  /** Undefined: the lease does not end, or there is none. */
  readonly time: LeaseTime | undefined;
}

/** What a lease is opened with, whoever manages the subnets. */
export interface HostLeaseParts {
  readonly host: Host;
  /** The host's subnets according to `subnet.env` or the record. */
  readonly previous: Subnets | undefined;
  readonly clock: Clock;
  readonly random: () => number;
  /** Called with the lease's state after each event. */
  readonly onState: (state: HostLeaseState) => void;
  /** Called with the changes of leases, of this host and of others. */
  readonly onLeases: (changes: readonly EntryChange[], registry: Registry) => void;
  /** Called when the reasons why configuration or leases are not followed may have changed. */
  readonly onUnread: (reasons: readonly unknown[]) => void;
  /**
   * Returns the reason why a configuration cannot be used on this host; called again from time to
   * time. By default no configuration is refused.
   */
  readonly refuse?: (config: OverlayConfig) => Promise<PodnetError | undefined>;
  /** Empties the subnets and resolves; given up with the signal when they are to stay after all. */
  readonly drain: (subnets: Subnets, signal: AbortSignal) => Promise<void>;
}

/**
 * One host's part in an overlay: which subnets it has, and which the other hosts have. Behind it is
 * etcd (`LeaseDriver`) or Kubernetes (`NodeLease`). Ending it does not give the subnets up.
 */
export interface HostLease extends AsyncDisposable {
  readonly view: HostLeaseState;
  /** The leases of all hosts, as far as they are known. */
  readonly registry: Registry;
  /** Begins to follow the other hosts, and to acquire subnets. */
  start(): void;
  /** Sets the host's address and backend data, which have changed. */
  become(host: Host): void;
  /** This host's part of the network works: the kernel is as wanted. */
  ready(): void;
  /** Gives the subnets up, once they are empty. */
  leave(): void;
  /**
   * Takes part again. `takeOver`: leases of other hosts that name this host's address are taken
   * over.
   */
  join(takeOver?: boolean): void;
  /** Sets the hosts that are gone: this host takes over their leases that name its address. */
  departed(owners: ReadonlySet<OwnerId>): void;
}
