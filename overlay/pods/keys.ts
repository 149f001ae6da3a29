import type { Brand } from "../../core/brand.ts";
import type { Ip } from "../../core/address.ts";
import { type PodId, parsePodId, parseServiceName, type ServiceName } from "../../core/names.ts";
import { type OwnPrefix, parseOwnPrefix, type Prefix } from "../flannel/prefix.ts";
import type { OwnerId } from "../owner.ts";
import { readable } from "./readable.ts";

/**
 * A host as its records are kept: its owner id and its name, so that a cloned machine is another
 * one.
 */
export type HostId = Brand<string, "HostId">;

/** The subject of one of podnet's own keys. */
export type RecordKey =
  | { readonly kind: "host"; readonly host: HostId }
  | { readonly kind: "pod"; readonly host: HostId; readonly pod: PodId }
  /** What a host knows of the health of its backends. */
  | { readonly kind: "health"; readonly host: HostId }
  /** A service of all hosts. */
  | { readonly kind: "service"; readonly service: ServiceName }
  /** Which service has an address. */
  | { readonly kind: "service-address" };

const hostPattern = /^[0-9a-f]{8}-[A-Za-z0-9._-]{1,64}$/;

/**
 * The prefix of the records of an overlay's hosts, or of the hosts of all overlays below a prefix.
 * It is outside of the overlays' own prefixes.
 */
export function recordsPrefix(overlay: Prefix): OwnPrefix {
  // An overlay whose name looks like that of podnet's own records gets another root, so that they
  // stay separate.
  const root = `${overlay}/`.startsWith("/podnet/") ? "/podnet-records" : "/podnet";
  return parseOwnPrefix(`${root}${overlay}`, overlay);
}

/** A host's id, whatever it is called. */
export function hostIdOf(owner: OwnerId, hostname: string): HostId {
  const name = hostname.replaceAll(/[^A-Za-z0-9._-]/g, "-").slice(0, 64) || "-";
  return `${owner.toString(16).padStart(8, "0")}-${name}` as HostId;
}

export const hostKey = (prefix: OwnPrefix, host: HostId): string => `${prefix}/hosts/${host}`;

export const podKey = (prefix: OwnPrefix, host: HostId, pod: PodId): string =>
  `${prefix}/pods/${host}/${pod}`;

export const healthKey = (prefix: OwnPrefix, host: HostId): string => `${prefix}/health/${host}`;

export const serviceKey = (prefix: OwnPrefix, service: ServiceName): string =>
  `${prefix}/services/${service}`;

/** No two services of the hosts have an address in common, of whichever overlay they are. */
export const serviceAddressKey = (prefix: OwnPrefix, address: Ip): string =>
  `${prefix}/service-addresses/${address}`;

/** The subject of a key below the prefix; undefined if the key is not podnet's. */
export function parseRecordKey(prefix: OwnPrefix, key: string): RecordKey | undefined {
  if (!key.startsWith(`${prefix}/`) || key.length > 512) return undefined;
  const [what, host = "", pod, ...more] = key.slice(prefix.length + 1).split("/");
  if (more.length > 0) return undefined;
  if (pod === undefined && what === "service-addresses") return { kind: "service-address" };
  if (pod === undefined && what === "services") {
    const service = readable(() => parseServiceName(host));
    return service === undefined ? undefined : { kind: "service", service };
  }
  if (!hostPattern.test(host)) return undefined;
  if (pod === undefined && (what === "hosts" || what === "health"))
    return { kind: what === "hosts" ? "host" : "health", host: host as HostId };
  const id = pod === undefined ? undefined : readable(() => parsePodId(pod));
  return what === "pods" && id !== undefined
    ? { kind: "pod", host: host as HostId, pod: id }
    : undefined;
}
