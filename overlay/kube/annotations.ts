import type { Ipv4, Ipv6 } from "../../core/address.ts";
import { familyOf, parseIp } from "../../core/address.ts";
import type { Host } from "../claim.ts";
import { type OverlayConfig, readable } from "../flannel/config.ts";
import { goJson, jsonOf } from "../flannel/json.ts";
import { wireData } from "../flannel/value.ts";

/** What flannel writes into a Node, by the names behind its prefix. */
const written = [
  "kube-subnet-manager",
  "backend-type",
  "backend-data",
  "backend-v6-data",
  "public-ip",
  "public-ipv6",
] as const;

/** What an administrator writes for flannel: the address that the other hosts are to send to. */
const given = [
  "public-ip-overwrite",
  "public-ipv6-overwrite",
  "node-public-ip",
  "node-public-ipv6",
] as const;

export type WrittenName = (typeof written)[number];
type AnnotationName = WrittenName | (typeof given)[number];

/** flannel's annotations of a Node. */
export type NodeAnnotations = Readonly<Partial<Record<AnnotationName, string>>>;

/** The prefix of flannel's annotations, unless it is given another. */
export const usualAnnotationPrefix = "flannel.alpha.coreos.com";

/** The longest annotation that is read, in characters: flannel's have fewer than two hundred. */
const longest = 4096;

/** flannel's annotations among all of a Node's. */
export const nodeAnnotations = (all: unknown, prefix: string): NodeAnnotations =>
  Object.fromEntries(
    [...written, ...given].flatMap((name): [string, string][] => {
      const key = `${prefix}/${name}`;
      const value: unknown =
        typeof all === "object" && all !== null && Object.hasOwn(all, key)
          ? (all as Readonly<Record<string, unknown>>)[key]
          : undefined;
      return typeof value === "string" ? [[name, value]] : [];
    }),
  );

export const isTooLong = (annotations: NodeAnnotations): boolean =>
  Object.values(annotations).some((value) => value.length > longest);

/** Whether the Node takes part in the overlay. */
export const takesPart = (annotations: NodeAnnotations): boolean =>
  annotations["kube-subnet-manager"] === "true";

/**
 * The value of a lease in etcd that says what a Node's annotations say, so that one parser reads
 * both. Undefined where a backend's data are no JSON.
 */
export function leaseTextOf(annotations: NodeAnnotations): string | undefined {
  const data = dataOf(annotations["backend-data"]);
  const v6Data = dataOf(annotations["backend-v6-data"]);
  if (data === "broken" || v6Data === "broken") return undefined;
  return goJson({
    PublicIP: annotations["public-ip"],
    PublicIPv6: annotations["public-ipv6"],
    BackendType: annotations["backend-type"],
    BackendData: data?.json,
    BackendV6Data: v6Data?.json,
  });
}

function dataOf(text: string | undefined): { readonly json: unknown } | undefined | "broken" {
  if (text === undefined || text === "") return undefined;
  const json = jsonOf(text);
  return json === undefined ? "broken" : { json };
}

/** What this host writes about itself, or the family of which it has no address. */
export type OwnAnnotations =
  | { readonly kind: "write"; readonly annotations: Readonly<Record<WrittenName, string | null>> }
  | { readonly kind: "address"; readonly family: 4 | 6 };

/**
 * The annotations of this host's Node. An administrator's address replaces the host's own; null
 * takes an annotation away.
 */
export function ownAnnotations(
  host: Omit<Host, "owner">,
  config: Pick<OverlayConfig, "v4" | "v6">,
  present: NodeAnnotations,
): OwnAnnotations {
  const publicIp = firstAddress(present, sources[4], 4) ?? host.publicIp;
  const publicIp6 = firstAddress(present, sources[6], 6) ?? host.publicIp6;
  if (config.v4 !== undefined && publicIp === undefined) return { kind: "address", family: 4 };
  if (config.v6 !== undefined && publicIp6 === undefined) return { kind: "address", family: 6 };
  const { type = "", v4, v6 } = wireData(host.attributes);
  return {
    kind: "write",
    annotations: {
      "kube-subnet-manager": "true",
      "backend-type": type,
      // (flannel writes "null" where a backend has no data.)
      "backend-data": config.v4 === undefined ? null : goJson(v4 ?? null),
      "backend-v6-data": config.v6 === undefined ? null : goJson(v6 ?? null),
      "public-ip": config.v4 === undefined ? null : (publicIp as Ipv4),
      "public-ipv6": config.v6 === undefined ? null : (publicIp6 as Ipv6),
    },
  };
}

/** Where an administrator says how the host is reached, the first one first. */
const sources = {
  4: ["public-ip-overwrite", "node-public-ip"],
  6: ["public-ipv6-overwrite", "node-public-ipv6"],
} as const;

const firstAddress = <F extends 4 | 6>(
  present: NodeAnnotations,
  names: readonly AnnotationName[],
  family: F,
): (F extends 4 ? Ipv4 : Ipv6) | undefined => {
  for (const name of names) {
    const found = addressIn(present[name], family);
    if (found !== undefined) return found;
  }
  return undefined;
};

/** An administrator's annotation that is no address of its family, and is passed over. */
export function unreadAddress(
  present: NodeAnnotations,
  { v4, v6 }: Pick<OverlayConfig, "v4" | "v6">,
): { readonly name: string; readonly text: string } | undefined {
  for (const [family, isUsed] of [
    [4, v4 !== undefined],
    [6, v6 !== undefined],
  ] as const)
    for (const name of isUsed ? sources[family] : []) {
      const text = present[name] ?? "";
      if (text !== "" && addressIn(text, family) === undefined) return { name, text };
    }
  return undefined;
}

/**
 * Whether annotations are those of this host, or absent. flanneld on this host writes other data:
 * its tunnel has another MAC, or its backend is another one.
 */
export function isDataOf(
  present: NodeAnnotations,
  { attributes }: Pick<Host, "attributes">,
): boolean {
  const { type = "", v4, v6 } = wireData(attributes);
  if (type === "" || present["backend-type"] === undefined) return true;
  const isLike = (text: string | undefined, data: unknown): boolean =>
    text === undefined || text === goJson(data ?? null);
  return (
    present["backend-type"] === type &&
    isLike(present["backend-data"], v4) &&
    isLike(present["backend-v6-data"], v6)
  );
}

/** An address of the family; undefined for text that is none, which is passed over. */
function addressIn<F extends 4 | 6>(
  text: string | undefined,
  family: F,
): (F extends 4 ? Ipv4 : Ipv6) | undefined {
  const ip = text === undefined ? undefined : readable(() => parseIp(text));
  return ip !== undefined && familyOf(ip) === family
    ? (ip as unknown as F extends 4 ? Ipv4 : Ipv6)
    : undefined;
}

/** What a host that has left no longer has. */
export const noAnnotations = Object.fromEntries(written.map((name) => [name, null])) as Readonly<
  Record<WrittenName, null>
>;

/** Whether a Node says all this already. */
export const isAnnotated = (
  present: NodeAnnotations,
  wanted: Readonly<Record<WrittenName, string | null>>,
): boolean => written.every((name) => (present[name] ?? null) === wanted[name]);
