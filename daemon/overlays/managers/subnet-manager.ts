import type { Cidr, Mac } from "../../../core/address.ts";
import type { Etcd } from "../../../etcd/etcd.ts";
import type { Subnets } from "../../../overlay/flannel/key.ts";
import type { Prefix } from "../../../overlay/flannel/prefix.ts";
import type { HostLease, HostLeaseParts } from "../../../overlay/host-lease.ts";
import type { Reservation } from "../../../overlay/reservations.ts";
import type { LeaseStore } from "../../../overlay/store.ts";
import type { KnownOverlay } from "../lease/reserve-subnet.ts";
import type { ReservationRequest } from "../view.ts";

/** What a lease is opened with in podnetd. */
export interface LeaseParts extends HostLeaseParts {
  /** Whether an earlier podnetd sent packets to a host with this subnet and one of these MACs. */
  readonly wasKnown: (network: Cidr, macs: readonly Mac[]) => boolean;
}

/**
 * Whoever gives the hosts of overlays their subnets, and lets each know of the others. One module
 * for each kind: etcd, Kubernetes.
 */
export interface SubnetManager extends Disposable {
  /** Its name in reports and messages. */
  readonly name: string;
  /** Opens this host's lease in an overlay. Nothing happens before it is started. */
  open(prefix: Prefix, parts: LeaseParts): HostLease;
  /** The time of a lease of time; undefined if it has ended, or leases do not end. */
  readonly timeLeft: LeaseStore["timeLeft"];
  /** The name of the host whose lease has a key; undefined if the key does not say. */
  hostOf(key: string): string | undefined;
  /** The subnets that are kept for hosts. */
  reservations(overlay: KnownOverlay): Reservation[];
  /**
   * Keeps a subnet for a host. Throws `INVALID_ARGUMENT`, `SUBNET_TAKEN`; `UNSUPPORTED` where
   * subnets cannot be kept.
   */
  reserve(
    overlay: KnownOverlay,
    request: ReservationRequest,
    signal: AbortSignal,
  ): Promise<Reservation>;
  /** Keeps it no longer. Answers whether it was kept. */
  unreserve(overlay: KnownOverlay, subnets: Subnets, signal: AbortSignal): Promise<boolean>;
  /** Where the names of overlays are found; undefined where there is only one overlay. */
  readonly names: Pick<LeaseStore, "follow"> | undefined;
  /** Where hosts publish their pods to each other; undefined where they do not. */
  readonly records: Etcd | undefined;
}
