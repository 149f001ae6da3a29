import type { Brand } from "../../core/brand.ts";
import { PodnetError } from "../../core/errors.ts";
import { type NetworkName, parseNetworkName, printable } from "../../core/names.ts";

/**
 * The prefix of an overlay's keys in etcd; `/coreos.com/network` is flannel's own. No slash at its
 * end.
 */
export type Prefix = Brand<string, "EtcdPrefix">;

/** The prefix of podnet's own records in etcd, outside of every overlay. */
export type OwnPrefix = Brand<string, "OwnPrefix">;

const segment = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
const longest = 200;

/**
 * flannel watches everything that starts with `<prefix>/subnets`, and a key there which it cannot
 * read costs a running node all its routes. So no key of ours may have that name, at any depth.
 */
const isReserved = (name: string): boolean => name.startsWith("subnets") || name === "config";

function checked(text: string, field: string): string {
  const [root, ...segments] = text.split("/");
  const usable =
    root === "" &&
    text.length <= longest &&
    segments.length > 0 &&
    segments.every((name) => segment.test(name) && !isReserved(name));
  if (usable) return text;
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" cannot be a prefix in etcd`, {
    field,
    hint: "Write a path such as /coreos.com/network, no part of which is config or starts with subnets",
  });
}

/** Reads an overlay's prefix. Throws `INVALID_ARGUMENT`. */
export const parsePrefix = (text: string, field = "prefix"): Prefix =>
  checked(text, field) as Prefix;

/**
 * Reads the prefix of podnet's own records, which is in no overlay's. Throws `INVALID_ARGUMENT`.
 */
export function parseOwnPrefix(text: string, overlay: Prefix, field = "records"): OwnPrefix {
  const own = checked(text, field);
  if (`${own}/`.startsWith(`${overlay}/`) || `${overlay}/`.startsWith(`${own}/`))
    throw new PodnetError("INVALID_ARGUMENT", `${own} and the overlay's ${overlay} are one`, {
      field,
      hint: "Keep podnet's own records apart from flannel's, at /podnet for example",
    });
  return own as OwnPrefix;
}

/**
 * The prefix of one of several overlays, as flannel had them: `<prefix>/<name>`. Throws
 * `INVALID_ARGUMENT`.
 */
export function networkPrefix(prefix: Prefix, name: string, field = "network"): Prefix {
  const label: NetworkName = parseNetworkName(name, field);
  return parsePrefix(`${prefix}/${label}`, field);
}

export const configKey = (prefix: Prefix): string => `${prefix}/config`;

/**
 * The prefix of every lease's key. No slash at the end: flannel has none either, so that both see
 * an equal set of keys.
 */
export const leasesPrefix = (prefix: Prefix): string => `${prefix}/subnets`;
