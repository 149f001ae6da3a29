import type { Cidr, Ip } from "../../core/address.ts";
import type { IfName, NetworkName } from "../../core/names.ts";
import type { Counters } from "../../network/overlay/udp/counters.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { Reservation } from "../../overlay/reservations.ts";

/** A host of an overlay as this one knows it. */
export interface OverlayPeerView {
  /** The key of its lease, which identifies it: in etcd, or by its Node's name. */
  readonly key: string;
  /** Its name, where the subnet manager knows it. */
  readonly host?: string;
  /** Its part of the overlay: one of each family that the overlay has. */
  readonly subnets: readonly Cidr[];
  /** The addresses to which packets for its subnets are sent. */
  readonly publicIps: readonly Ip[];
  /** The backend in its lease: `vxlan`, `host-gw`, ... */
  readonly backend: string;
  /**
   * When its lease ends unless it is renewed, wall clock, milliseconds. Absent: never (reserved),
   * or not known.
   */
  readonly expiresAt?: number;
  /** When it was made or renewed last, likewise. */
  readonly renewedAt?: number;
  /** Its lease has no end. */
  readonly reserved: boolean;
  /** This host. */
  readonly self: boolean;
  /** Whether it answered the last probe. Absent: it is not probed. */
  readonly reachable?: boolean;
  /** How long that answer took, milliseconds. */
  readonly rttMs?: number;
}

/** An overlay that this host takes part in, or should take part in. */
export interface OverlayView {
  readonly name: string;
  readonly phase: LeasePhase;
  /** Who gives the hosts their subnets: `etcd`, `Kubernetes`. */
  readonly manager: string;
  /** The overlay's networks; empty until its configuration has been read. */
  readonly networks: readonly Cidr[];
  /** This host's subnets; empty before it has a lease. */
  readonly subnets: readonly Cidr[];
  /** Empty until the configuration has been read. */
  readonly backend: string;
  /** The key of this host's lease in etcd; absent before it has one. */
  readonly leaseKey?: string;
  /** The addresses of this host to which other hosts send. */
  readonly publicIps: readonly Ip[];
  /** The MTU between pods of different hosts; 0 until it is known. */
  readonly mtu: number;
  /** For how long the manager has not been heard, milliseconds; absent while it is. */
  readonly staleMs?: number;
  /** When this host's lease ends unless it is renewed, wall clock, milliseconds. */
  readonly expiresAt?: number;
  /** This host's lease has no end. */
  readonly reserved: boolean;
  /** The problems of the overlay on this host, one line each. */
  readonly troubles: readonly string[];
  /** Other hosts that packets are sent to. */
  readonly peers: number;
  /** Keys alongside the leases that cannot be read, or are of another backend. */
  readonly skippedKeys: number;
  /** The podnet network that takes its range from it. */
  readonly network: NetworkName;
  /**
   * The tunnel through which podnetd forwards packets, and its counters; only with the backend udp.
   */
  readonly tunnel?: { readonly device: IfName; readonly counters: Counters };
}

/** A request for a reservation. */
export interface ReservationRequest {
  /** The host's address: of each family that the overlay has. */
  readonly publicIps: readonly Ip[];
  /** Default: the subnets of this address's lease. */
  readonly subnets?: Reservation["subnets"];
}

/**
 * The functions of overlays that the API uses. Each call that names an overlay throws
 * `OVERLAY_NOT_FOUND` if there is none of that name. Calls with a signal query etcd, and throw the
 * errors of its client.
 */
export interface OverlayControl {
  /** By name. */
  list(): readonly OverlayView[];
  /**
   * The problems of all overlays together, or of publishing pods to other hosts, one line each.
   * That etcd is unreachable is reported by each overlay.
   */
  readonly troubles: readonly string[];
  /**
   * All hosts by subnet, this one among them, without a call: of leases this host's own alone has
   * an end.
   */
  nodes(name: string): readonly OverlayPeerView[];
  /**
   * Whether another host answered the last probe, by the key of its lease in an overlay. Undefined
   * of one that is not probed.
   */
  reaches(name: string, leaseKey: string): boolean | undefined;
  /**
   * Returns the nodes with the ends of all leases that etcd reports. A missing end is not a
   * failure; the call takes seconds at most.
   */
  leasedNodes(name: string): Promise<readonly OverlayPeerView[]>;
  /** Drains this host's subnets and gives the lease up; resolves once that is done. */
  leave(name: string, signal: AbortSignal): Promise<void>;
  /**
   * Takes part again after a `leave`. `takeOver`: takes over the subnets that other hosts have
   * leased with this host's address.
   */
  join(name: string, takeOver: boolean): void;
  /** The desired state of the kernel, one line each. */
  planned(name: string): readonly string[];
  /** The deviations of the kernel from the desired state, one line each. */
  diff(name: string, signal: AbortSignal): Promise<readonly string[]>;
  /**
   * Pauses changes of the kernel from the moment this resolves until the returned function is
   * called.
   */
  rest(): Promise<() => void>;
  /** Takes everything of overlays from the host, in a rest, one line each; leases stay. */
  down(): Promise<readonly string[]>;
  reservations(name: string, signal: AbortSignal): Promise<readonly Reservation[]>;
  /** Returns the reservation. Throws `INVALID_ARGUMENT`, `SUBNET_TAKEN`. */
  reserve(name: string, request: ReservationRequest, signal: AbortSignal): Promise<Reservation>;
  /** Absence is success: returns whether there was one. */
  unreserve(name: string, subnets: Reservation["subnets"], signal: AbortSignal): Promise<boolean>;
}
