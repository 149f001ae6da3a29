import type { Etcd } from "../../../etcd/etcd.ts";
import { LeaseDriver } from "../../../overlay/drive-lease.ts";
import { EtcdStore } from "../../../overlay/etcd-store.ts";
import type { Subnets } from "../../../overlay/flannel/key.ts";
import type { Prefix } from "../../../overlay/flannel/prefix.ts";
import type { HostLease } from "../../../overlay/host-lease.ts";
import type { Reservation } from "../../../overlay/reservations.ts";
import type { LeaseStore } from "../../../overlay/store.ts";
import type { EtcdConfig } from "../../config/overlay.ts";
import {
  keptIn,
  type KnownOverlay,
  reserveSubnet,
  unreserveSubnet,
} from "../lease/reserve-subnet.ts";
import type { ReservationRequest } from "../view.ts";
import { openEtcd } from "./etcd-access.ts";
import type { LeaseParts, SubnetManager } from "./subnet-manager.ts";

/** Subnets as leases in etcd, alongside flannel's. */
export class EtcdManager implements SubnetManager {
  readonly name = "etcd";
  /** The client of etcd that all overlays share. */
  readonly records: Etcd & Disposable;
  readonly names: LeaseStore;
  readonly #config: EtcdConfig;

  /** Sends nothing yet. Throws `CONFIG_INVALID`. */
  constructor(config: EtcdConfig) {
    this.#config = config;
    this.records = openEtcd(config);
    this.names = new EtcdStore(this.records);
  }

  get timeLeft(): LeaseStore["timeLeft"] {
    return (grant, signal) => this.names.timeLeft(grant, signal);
  }

  open(prefix: Prefix, parts: LeaseParts): HostLease {
    const { ttlSeconds, marginSeconds } = this.#config;
    const settings = { prefix, ttlSeconds, marginSeconds, misfit: "drain" } as const;
    return new LeaseDriver({ ...parts, store: this.names, settings });
  }

  /** Hosts publish their names in records of their own. */
  hostOf(): undefined {}

  reservations(overlay: KnownOverlay): Reservation[] {
    return keptIn(overlay);
  }

  reserve(
    overlay: KnownOverlay,
    request: ReservationRequest,
    signal: AbortSignal,
  ): Promise<Reservation> {
    return reserveSubnet(overlay, request, this.names, signal);
  }

  unreserve(overlay: KnownOverlay, subnets: Subnets, signal: AbortSignal): Promise<boolean> {
    return unreserveSubnet(overlay, subnets, this.names, signal);
  }

  [Symbol.dispose](): void {
    this.records[Symbol.dispose]();
  }
}
