import type { Brand } from "./brand.ts";
import { PodnetError } from "./errors.ts";
import { cutText, shown } from "./shown.ts";

/**
 * A kernel interface name: 1 to 15 bytes (IFNAMSIZ - 1), no white space, no `/`, no `:`; not
 * `.`/`..`.
 */
export type IfName = Brand<string, "IfName">;
/** A pod's id: 12 lower-case base-32 characters, the stem of every kernel name the pod gets. */
export type PodId = Brand<string, "PodId">;
/** A name people give: 1 to 63 characters, a DNS label. */
export type PodName = Brand<string, "PodName">;
/** A network's name: a DNS label of at most 63 characters. */
export type NetworkName = Brand<string, "NetworkName">;
/** A service's name: a DNS label of at most 63 characters. */
export type ServiceName = Brand<string, "ServiceName">;

/** Whether the text is one label of a host's name, in lower case (RFC 1123 section 2.1). */
export const isDnsLabel = (text: string): boolean => dnsLabel.test(text);

const dnsLabel = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const hostLabel = /^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$/;
// Every printable ASCII character the kernel takes but quotes and backslash, which rule files
// cannot carry.
const ifName = /^[A-Za-z0-9_.@+=-]{1,15}$/;
const podId = /^[a-z2-7]{12}$/;

// Folders below /proc/sys/net/*/conf that apply to all links: a link must not have such a name.
const sysctlFolders: ReadonlySet<string> = new Set(["all", "default"]);

/** Parses an interface name. Throws `INVALID_ARGUMENT`, also for `all` and `default`. */
export function parseIfName(text: string, field = "name"): IfName {
  if (sysctlFolders.has(text)) {
    throw new PodnetError("INVALID_ARGUMENT", `Interface name "${text}" is not usable`, {
      field,
      hint: `In /proc/sys/net "${text}" stands for every interface; use a name such as eth0`,
    });
  }
  if (!ifName.test(text) || text === "." || text === ".." || text.startsWith("-")) {
    throw new PodnetError("INVALID_ARGUMENT", `Interface name "${printable(text)}" is not usable`, {
      field,
      hint: "Use 1 to 15 characters from A-Z a-z 0-9 _ . @ + = - and do not start with -",
    });
  }
  return text as IfName;
}

export function parsePodId(text: string, field = "id"): PodId {
  if (!podId.test(text)) {
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(text)}" is not a pod id`, {
      field,
      hint: "A pod id is 12 characters from a-z and 2-7, as `podnet list` shows it",
    });
  }
  return text as PodId;
}

function parseDnsLabel(text: string, what: string, field: string): string {
  if (!dnsLabel.test(text)) {
    throw new PodnetError("INVALID_ARGUMENT", `${what} "${printable(text)}" is not a DNS label`, {
      field,
      hint: "Use 1 to 63 characters from a-z, 0-9 and -, and neither start nor end with -",
    });
  }
  return text;
}

export function parsePodName(text: string, field = "name"): PodName {
  return parseDnsLabel(text, "Pod name", field) as PodName;
}

export function parseNetworkName(text: string, field = "network"): NetworkName {
  return parseDnsLabel(text, "Network name", field) as NetworkName;
}

export function parseServiceName(text: string, field = "name"): ServiceName {
  return parseDnsLabel(text, "Service name", field) as ServiceName;
}

/** A hostname for the guest: DNS labels joined by dots, at most 63 characters (hyperd's limit). */
export function parseHostname(text: string, field = "hostname"): string {
  // Capitals are spelt out, not lowered: U+212A, the Kelvin sign, becomes an ASCII k in lower case.
  if (text.length > 63 || !text.split(".").every((label) => hostLabel.test(label))) {
    throw new PodnetError("INVALID_ARGUMENT", `Hostname "${printable(text)}" is not usable`, {
      field,
      hint: "Use DNS labels (a-z, 0-9, -) joined by dots, at most 63 characters in all",
    });
  }
  return text;
}

const base32 = "abcdefghijklmnopqrstuvwxyz234567";

/** Makes a pod id of 60 random bits from 12 random bytes. */
export function podIdFromBytes(random: Uint8Array): PodId {
  if (random.length < 12) throw new RangeError("A pod id takes 12 random bytes");
  let id = "";
  for (let i = 0; i < 12; i++) id += base32[(random[i] as number) & 31];
  return id as PodId;
}

/**
 * Foreign text made safe between quotes in a message, a log line or a terminal: characters that
 * control, hide or reverse their surroundings become `\u001b`; at most 80 characters.
 */
export function printable(text: string): string {
  // Escapes quotes and backslashes too: quoted text must not end its quotes.
  const quoted = cutText(text, 80).replaceAll(
    /["\\]/g,
    (c) => `\\u00${c.charCodeAt(0).toString(16)}`,
  );
  return shown(quoted, 80);
}
