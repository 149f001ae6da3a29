import { hostname } from "node:os";
import { contains, type Ip } from "../../../core/address.ts";
import { decodeUtf8 } from "../../../core/utf8.ts";
import type { NetworkName, ServiceName } from "../../../core/names.ts";
import type { Compare, Etcd, KeyValue, Operation } from "../../../etcd/etcd.ts";
import type { OwnPrefix } from "../../../overlay/flannel/prefix.ts";
import { healthRecordText } from "../../../overlay/pods/health-record.ts";
import { type HostId, serviceAddressKey, serviceKey } from "../../../overlay/pods/keys.ts";
import type { Candidate } from "../../services/endpoints.ts";
import type {
  Refused,
  SharedChange,
  SharedState,
  SharingHosts,
} from "../../services/shared/hosts.ts";
import type { OverlayControl, OverlayView } from "../view.ts";
import type { HostRecords } from "./host-records.ts";

export interface SharedHostsParts {
  /** The name of this host; the kernel's unless given. */
  readonly hostname?: string;
  readonly etcd: Pick<Etcd, "txn" | "range">;
  readonly prefix: OwnPrefix;
  readonly overlays: Pick<OverlayControl, "list" | "reaches">;
  readonly records: Pick<HostRecords, "remote" | "services" | "listed" | "healthChanged">;
}

/** Times that an address is asked for that a service which is no more has left behind. */
const mostTries = 3;

/** The other hosts of this one's overlays as its services need them, by their records in etcd. */
export class SharedHosts implements SharingHosts {
  readonly hostname: string;
  readonly #parts: SharedHostsParts;

  constructor(parts: SharedHostsParts) {
    this.#parts = parts;
    this.hostname = parts.hostname ?? hostname();
  }

  overlayOf(network: NetworkName): string | undefined {
    return this.#viewOf(network)?.name;
  }

  networkOf(overlay: string): NetworkName | undefined {
    return this.#joined().find(({ name }) => name === overlay)?.network;
  }

  definitions(): ReturnType<SharingHosts["definitions"]> {
    const { listed, services } = this.#parts.records;
    return listed && { ...listed, services: services.services };
  }

  candidates(network: NetworkName): readonly Candidate[] | undefined {
    const { records } = this.#parts;
    const overlay = this.#viewOf(network);
    if (overlay === undefined) return [];
    if (records.listed === undefined) return undefined;
    return records.remote.runningOn(overlay.name).flatMap(({ pod, ips }): Candidate[] => {
      const addresses = ips.filter((ip) => isElsewhere(ip, overlay)).map((ip) => ({ network, ip }));
      if (addresses.length === 0) return [];
      const host = { id: pod.host, name: pod.hostname };
      return [{ kind: "pod", host, shown: pod.name, labels: pod.labels, addresses }];
    });
  }

  isSilent(host: string, network: NetworkName): boolean {
    const { overlays, records } = this.#parts;
    const overlay = this.overlayOf(network);
    if (overlay === undefined) return false;
    // (Leases of other overlays are not probed in this one.)
    const probed = records.remote
      .leasesOf(host as HostId)
      .map((lease) => overlays.reaches(overlay, lease))
      .filter((each) => each !== undefined);
    return probed.length > 0 && !probed.includes(true);
  }

  healthOf(...[host, backend]: Parameters<SharingHosts["healthOf"]>) {
    return this.#parts.records.services.healthOf(host as HostId, backend);
  }

  publishHealth(unhealthy: Parameters<SharingHosts["publishHealth"]>[0]): void {
    this.#parts.records.healthChanged(unhealthy && healthRecordText(unhealthy));
  }

  async put(
    change: SharedChange,
    signal: AbortSignal,
  ): Promise<(SharedState & { readonly kind: "done" }) | Refused> {
    const { etcd, prefix } = this.#parts;
    const { name, text, addresses, before } = change;
    const key = serviceKey(prefix, name);
    const keys = addresses.map((address) => serviceAddressKey(prefix, address));
    const gone = (before?.addresses ?? []).filter((each) => !addresses.includes(each));
    /** Addresses that a service left behind, by the revision of their keys. */
    const left = new Map<string, bigint>();
    for (let tries = 1; ; tries++) {
      const fresh = addresses.filter((each) => before?.addresses.includes(each) !== true);
      const { succeeded, results, revision, cluster } = await etcd.txn(
        {
          when: [
            { key, target: "modRevision", is: "=", value: before?.revision ?? 0n },
            ...fresh.map((address): Compare => {
              const at = serviceAddressKey(prefix, address);
              return { key: at, target: "modRevision", is: "=", value: left.get(at) ?? 0n };
            }),
          ],
          do: [
            { kind: "put", key, value: text },
            ...keys.map((at): Operation => ({ kind: "put", key: at, value: name })),
            ...gone.map((each): Operation => forget(serviceAddressKey(prefix, each))),
          ],
          otherwise: [key, ...keys].map((at) => ({ kind: "range", where: { key: at } })),
        },
        { signal },
      );
      if (succeeded) return { kind: "done", revision, cluster };
      const found = results.map((each) => (each.kind === "range" ? each.kvs[0] : undefined));
      const [service, ...held] = found;
      if ((service?.modRevision ?? 0n) !== (before?.revision ?? 0n))
        return { kind: "changed", now: service && sharedOf(service) };
      const other = await this.#holderOf(name, held, addresses, signal);
      if (other !== undefined && (!other.isGone || tries === mostTries))
        return { kind: "address", ...other };
      for (const kv of held) if (kv !== undefined) left.set(kv.key, kv.modRevision);
      if (tries === mostTries) return { kind: "changed", now: service && sharedOf(service) };
    }
  }

  async remove(name: ServiceName, addresses: readonly Ip[], signal: AbortSignal): Promise<void> {
    const { etcd, prefix } = this.#parts;
    const keys = [
      serviceKey(prefix, name),
      ...addresses.map((ip) => serviceAddressKey(prefix, ip)),
    ];
    await etcd.txn({ when: [], do: keys.map(forget) }, { signal });
  }

  /** The first other service that has one of the addresses, and whether etcd has it no more. */
  async #holderOf(
    name: ServiceName,
    held: readonly (KeyValue | undefined)[],
    addresses: readonly Ip[],
    signal: AbortSignal,
  ): Promise<{ address: Ip; holder: string; isGone: boolean } | undefined> {
    const { etcd, prefix } = this.#parts;
    for (const [i, address] of addresses.entries()) {
      const kv = held[i];
      const holder = kv && decodeUtf8(kv.value);
      if (holder === undefined || holder === name) continue;
      const key = serviceKey(prefix, holder as ServiceName);
      const { kvs } = await etcd.range({ key }, { signal, keysOnly: true });
      return { address, holder, isGone: kvs.length === 0 };
    }
    return undefined;
  }

  #viewOf(network: NetworkName): OverlayView | undefined {
    return this.#joined().find((each) => each.network === network);
  }

  /** The overlays that this host has not left. */
  #joined(): readonly OverlayView[] {
    return this.#parts.overlays
      .list()
      .filter(({ phase }) => phase !== "left" && phase !== "draining");
  }
}

const forget = (key: string): Operation => ({ kind: "delete", where: { key } });

const sharedOf = ({ value, modRevision }: KeyValue) => ({
  text: decodeUtf8(value),
  revision: modRevision,
});

/**
 * Whether an address can be a pod's of another host: of the overlay, and not of what this host has
 * of it.
 */
export const isElsewhere = (ip: Ip, { networks, subnets }: OverlayView): boolean =>
  networks.some((network) => contains(network, ip)) &&
  !subnets.some((subnet) => contains(subnet, ip));
