import { domainToASCII } from "node:url";
import type { Brand } from "../core/brand.ts";
import { isIp } from "../core/address.ts";
import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";

/**
 * A host's name as it is compared: ASCII in lower case, A-labels where it is international, without
 * the root's dot.
 */
export type DomainName = Brand<string, "DomainName">;

/** A name, or every name below it. */
export interface DomainPattern {
  readonly name: DomainName;
  /** Names below `name` at any depth, and not `name` itself. */
  readonly below: boolean;
}

/** RFC 1035 section 2.3.4, as text without the root's dot. */
const longestName = 253;
// Underscores are in names of real hosts and services, though in none that RFC 1123 allows.
const label = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;
/** What resolvers take for an IPv4 address when a name ends with it: `127.1`, `0x7f.1`. */
const numeric = /(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)$/;

/**
 * A name as it comes in a query, a ClientHello or a `Host` header, made comparable; undefined when
 * it is no host's name. Names on the wire are ASCII: others are refused rather than converted.
 */
export function canonicalName(text: string): DomainName | undefined {
  if (text.length > longestName + 1) return undefined;
  // Capitals are lowered by hand: U+212A, the Kelvin sign, becomes an ASCII k in lower case.
  const name = text.replaceAll(/[A-Z]/g, (capital) => capital.toLowerCase()).replace(/\.$/, "");
  const labels = name.split(".");
  const isName =
    name.length <= longestName && labels.every((each) => label.test(each)) && !numeric.test(name);
  return isName ? (name as DomainName) : undefined;
}

/**
 * Reads `api.example.com` or `*.example.com`, in letters of any script: they become A-labels by
 * UTS #46, non-transitional, as browsers do it. Throws `INVALID_ARGUMENT`.
 */
export function parseDomainPattern(text: string, field = "domain"): DomainPattern {
  const below = text.startsWith("*.");
  const written = below ? text.slice(2) : text;
  const ascii = /^[\x21-\x7e]*$/.test(written) ? written : international(written);
  const name = canonicalName(ascii);
  // Names without a dot belong to pods: no other server is asked for them.
  if (name !== undefined && (below || name.includes("."))) return { name, below };
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is not a domain`, {
    field,
    hint: hintFor(text),
  });
}

/**
 * A-labels of a name; empty when it has none. What the conversion reads as more than a name, such
 * as an escape, is left out first.
 */
const international = (name: string): string =>
  /[\s%/\\?#@:[\]<>^|]/.test(name) ? "" : domainToASCII(name);

function hintFor(text: string): string {
  if (text === "*") return "For every name set default: allow, or leave domains out";
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return "Write the name alone, such as api.example.com";
  if (isIp(text) || text.includes("/")) return "Write addresses and networks in cidrs";
  if (/:[0-9]+$/.test(text)) return "Write the port in ports, and the name alone here";
  if (text.includes("*")) return "A * stands for whole labels in front: *.example.com";
  return "Write a name with a dot, such as api.example.com, or *.example.com for all below it";
}

/** Whether a name is the pattern's. */
export const matchesDomain = (pattern: DomainPattern, name: DomainName): boolean =>
  pattern.below ? name.endsWith(`.${pattern.name}`) : name === pattern.name;

/** A pattern as it is written. */
export const domainText = ({ name, below }: DomainPattern): string => (below ? `*.${name}` : name);
