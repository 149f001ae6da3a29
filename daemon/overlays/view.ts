import type { Cidr, Ip } from "../../core/address.ts";
import type { IfName, NetworkName } from "../../core/names.ts";
import type { Counters } from "../../network/overlay/udp/counters.ts";
import type { LeasePhase } from "../../overlay/lease-status.ts";
import type { Reservation } from "../../overlay/reservations.ts";

/** A host of an overlay as this one knows it. */
export interface OverlayPeerView {
  /** Its lease's key in etcd: what it is known by. */
  readonly key: string;
  /** Its part of the overlay: one of each family that the overlay has. */
  readonly subnets: readonly Cidr[];
  /** Where packets for its subnets are sent. */
  readonly publicIps: readonly Ip[];
  /** As its lease says: `vxlan`, `host-gw`, ... */
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

/** An overlay that this host is in, or is to be in. */
export interface OverlayView {
  readonly name: string;
  readonly phase: LeasePhase;
  /** What the overlay as a whole has; none until its configuration has been read. */
  readonly networks: readonly Cidr[];
  /** What this host has of it; none before it has a lease. */
  readonly subnets: readonly Cidr[];
  /** Empty until the configuration has been read. */
  readonly backend: string;
  /** The key of this host's lease in etcd; absent before it has one. */
  readonly leaseKey?: string;
  /** What other hosts send to, of this one. */
  readonly publicIps: readonly Ip[];
  /** Of packets between pods of different hosts; 0 until it is known. */
  readonly mtu: number;
  /** For how long etcd has not been heard, milliseconds; absent while it is. */
  readonly staleMs?: number;
  /** When this host's lease ends unless it is renewed, wall clock, milliseconds. */
  readonly expiresAt?: number;
  /** This host's lease has no end. */
  readonly reserved: boolean;
  /** What keeps it from being as it should, one line each. */
  readonly troubles: readonly string[];
  /** Other hosts that packets are sent to. */
  readonly peers: number;
  /** Keys alongside the leases that cannot be read, or are of another backend. */
  readonly skippedKeys: number;
  /** The podnet network that takes its range from it. */
  readonly network: NetworkName;
  /** Of the backend udp alone: what podnetd moves packets by, and what it has counted of them. */
  readonly tunnel?: { readonly device: IfName; readonly counters: Counters };
}

/** What is to be kept for a host. */
export interface ReservationRequest {
  /** The host's address: of each family that the overlay has. */
  readonly publicIps: readonly Ip[];
  /** Absent: those that this address has a lease of. */
  readonly subnets?: Reservation["subnets"];
}

/**
 * What the API asks of the overlays. Every call that names one throws `OVERLAY_NOT_FOUND` when
 * there is none of that name; those with a signal ask etcd, and throw what the client does.
 */
export interface OverlayControl {
  /** By name. */
  list(): readonly OverlayView[];
  /**
   * What is in the way of all of them, or of telling other hosts of pods, one line each; that etcd
   * is away is said by each.
   */
  readonly troubles: readonly string[];
  /**
   * All hosts by subnet, this one among them, without a call: of leases this host's own alone has
   * an end.
   */
  nodes(name: string): readonly OverlayPeerView[];
  /**
   * The same with the ends of all leases that etcd reports; never fails for those that it does not,
   * and takes seconds at most.
   */
  leasedNodes(name: string): Promise<readonly OverlayPeerView[]>;
  /** Drains this host's subnets and gives the lease up; resolves once that is done. */
  leave(name: string, signal: AbortSignal): Promise<void>;
  /**
   * Takes part again after a `leave`. `takeOver`: takes over what other hosts have leased with this
   * host's address.
   */
  join(name: string, takeOver: boolean): void;
  /** What the kernel is to have, one line each. */
  planned(name: string): readonly string[];
  /** What of the kernel is not as planned, one line each. */
  diff(name: string, signal: AbortSignal): Promise<readonly string[]>;
  /** The kernel is left alone from when this resolves until what it answers is called. */
  rest(): Promise<() => void>;
  /** Takes everything of overlays from the host, in a rest, one line each; leases stay. */
  down(): Promise<readonly string[]>;
  reservations(name: string, signal: AbortSignal): Promise<readonly Reservation[]>;
  /** Answers with what is kept now. Throws `INVALID_ARGUMENT`, `SUBNET_TAKEN`. */
  reserve(name: string, request: ReservationRequest, signal: AbortSignal): Promise<Reservation>;
  /** Absent is success: answers whether there was one. */
  unreserve(name: string, subnets: Reservation["subnets"], signal: AbortSignal): Promise<boolean>;
}
