import type { Ip } from "../../../core/address.ts";
import type { NetworkName, ServiceName } from "../../../core/names.ts";
import type { UnhealthyBackend } from "../../../overlay/pods/health-record.ts";
import type { RemoteHealth, SharedText } from "../../../overlay/pods/shared-services.ts";
import type { Candidate } from "../endpoints.ts";

/** Which etcd, and up to which revision. */
export interface SharedState {
  readonly cluster: bigint;
  readonly revision: bigint;
}

/** What has changed of other hosts' records. */
export interface RecordsChange {
  /** Some of them are about services. */
  readonly services: boolean;
  /** etcd has lost its data, or is as it was before: what it lacks may have been lost. */
  readonly lost: boolean;
}

/** A change of a definition: what it was is undefined for a new one. */
export interface SharedChange {
  readonly name: ServiceName;
  readonly text: string;
  readonly addresses: readonly Ip[];
  readonly before?: { readonly revision: bigint; readonly addresses: readonly Ip[] };
}

/** What etcd has instead of what a change took for granted. */
export type Refused =
  /** Undefined: the service is gone. */
  | { readonly kind: "changed"; readonly now: SharedText | undefined }
  | { readonly kind: "address"; readonly address: Ip; readonly holder: string };

/**
 * The other hosts, as services need them. Calls that write ask etcd, and throw the errors of its
 * client.
 */
export interface SharingHosts {
  /** Name of this host. */
  readonly hostname: string;
  /** The overlay of a network; undefined of none, and of one that the host has left. */
  overlayOf(network: NetworkName): string | undefined;
  networkOf(overlay: string): NetworkName | undefined;
  /** What etcd has, as far as it was heard; undefined before it has listed anything. */
  definitions():
    | (SharedState & { readonly services: ReadonlyMap<ServiceName, SharedText> })
    | undefined;
  /** The pods of other hosts that run on a network; undefined before etcd has listed anything. */
  candidates(network: NetworkName): readonly Candidate[] | undefined;
  /** Whether the host of pods on a network was probed last, and has not answered. */
  isSilent(host: string, network: NetworkName): boolean;
  /** What the host of a remote pod says of it. */
  healthOf(host: string, backend: Omit<UnhealthyBackend, "why">): RemoteHealth | undefined;
  /** Writes a definition where etcd has what is expected. */
  put(
    change: SharedChange,
    signal: AbortSignal,
  ): Promise<(SharedState & { readonly kind: "done" }) | Refused>;
  /** Absence is success. */
  remove(name: ServiceName, addresses: readonly Ip[], signal: AbortSignal): Promise<void>;
  /** Publishes which backends of this host do not serve; undefined: it asks none. */
  publishHealth(unhealthy: readonly UnhealthyBackend[] | undefined): void;
}
