import { type Cidr, networkOf, parseIpPrefix, parseUnicastMac } from "../../core/address.ts";
import { printable } from "../../core/names.ts";
import { decodeUtf8 } from "../../core/utf8.ts";
import { noCapabilities, parseCapabilities, parseIps } from "./capabilities.ts";
import type { AttachmentName, CniConfig } from "./config.ts";
import {
  asObject,
  countAt,
  flagAt,
  type JsonObject,
  listAt,
  member,
  objectAt,
  read,
  readAt,
  textAt,
  textsAt,
} from "./json.ts";
import { isNestedTooDeep } from "./nesting.ts";
import { cniError, refusal } from "./refusal.ts";
import type { CniDns } from "./result.ts";
import { parseDns, parseResult } from "./result-read.ts";
import { type CniVersion, parseVersion } from "./version.ts";

/** Container IDs and names of networks. */
const namePattern = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;
/**
 * Characters of a container ID or a network's name; the protocol sets no limit, a file's name does
 * (pending.ts).
 */
const nameLimit = 200;

export const isCniName = (text: string): boolean =>
  text.length <= nameLimit && namePattern.test(text);

/** Decodes standard input. Throws with CNI's error 6. */
export function decodeConfig(stdin: Uint8Array): JsonObject {
  if (isNestedTooDeep(stdin)) throw undecodable("it is nested too deep");
  let value: unknown;
  try {
    value = JSON.parse(decodeUtf8(stdin));
  } catch (cause) {
    throw undecodable("it is no JSON", cause);
  }
  return asObject(value, "stdin");
}

const undecodable = (why: string, cause?: unknown) =>
  refusal(`The network configuration cannot be decoded: ${why}`, {
    cni: cniError.decode,
    field: "stdin",
    hint: "Hand the plugin its configuration as JSON on standard input",
    cause,
  });

const versionOf = (object: JsonObject): CniVersion =>
  parseVersion(textAt(object, "cniVersion", "cniVersion"));

/**
 * Reads a plugin's configuration. `lenient` (DEL, GC): what only an ADD needs counts as absent when
 * it cannot be read, so that an attachment is taken back whatever has become of its configuration.
 * Throws with CNI's error 1, 6 or 7.
 */
export function parseConfig(object: JsonObject, lenient: boolean): CniConfig {
  const version = versionOf(object);
  const name = textAt(object, "name", "name");
  if (name === undefined || !isCniName(name))
    throw refusal(
      name === undefined
        ? "missing network name"
        : `invalid characters in network name "${printable(name)}"`,
      {
        cni: cniError.config,
        field: "name",
        hint: "Give the network a name from A-Z a-z 0-9 _ . - that starts with a letter or a digit",
      },
    );
  const identity = { version, name, type: textAt(object, "type", "type") ?? "" };
  const network = textAt(object, "network", "network");
  const attachments = validAttachments(object);
  const always = {
    ...identity,
    ...(network === undefined ? {} : { network }),
    ...(attachments === undefined ? {} : { validAttachments: attachments }),
  };
  if (!lenient) return { ...always, ...requests(object, version) };
  try {
    return { ...always, ...requests(object, version) };
  } catch {
    return { ...always, ...noRequests };
  }
}

/** The requests of an ADD. */
function requests(
  object: JsonObject,
  version: CniVersion,
): Omit<CniConfig, "version" | "name" | "type" | "network" | "validAttachments"> {
  const previous = member(object, "prevResult");
  const dns = parseDns(objectAt(object, "dns", "dns"), "dns");
  const mtu = countAt(object, "mtu", "mtu", 0, 65535) ?? 0;
  const args = objectAt(objectAt(object, "args", "args"), "cni", "args.cni");
  const mac = readAt(args, "mac", "args.cni.mac", parseUnicastMac);
  return {
    ...(previous === undefined ? {} : { prevResult: parseResult(previous, version, "prevResult") }),
    capabilities: parseCapabilities(
      objectAt(object, "runtimeConfig", "runtimeConfig"),
      textAt(object, "name", "name") ?? "",
    ),
    args: {
      ips: parseIps(args, "ips", "args.cni.ips"),
      ...(mac === undefined ? {} : { mac }),
      labels: labelsOf(args),
    },
    ...(sameAsNone(dns) ? {} : { dns }),
    ...(mtu === 0 ? {} : { mtu }),
    serviceCidrs: serviceCidrs(object),
    portsHeldByRuntime: flagAt(object, "portsHeldByRuntime", "portsHeldByRuntime"),
  };
}

const noRequests = {
  capabilities: noCapabilities,
  args: { ips: [], labels: new Map() },
  serviceCidrs: [],
  portsHeldByRuntime: false,
} as const;

/** A list of `{ "key": …, "value": … }` (CNI's CONVENTIONS.md, `args` in the configuration). */
function labelsOf(args: JsonObject): ReadonlyMap<string, string> {
  const at = "args.cni.labels";
  return new Map(
    listAt(args, "labels", at).map((entry, i) => {
      const label = asObject(entry, `${at}[${i}]`);
      const key = textAt(label, "key", `${at}[${i}].key`) ?? "";
      return [key, textAt(label, "value", `${at}[${i}].value`) ?? ""];
    }),
  );
}

const sameAsNone = (dns: CniDns): boolean =>
  dns.domain === undefined && dns.nameservers.length + dns.search.length + dns.options.length === 0;

/** One network or a list of them, one for each family. */
function serviceCidrs(object: JsonObject): readonly Cidr[] {
  const value = member(object, "serviceCidr");
  const texts =
    typeof value === "string"
      ? [value].filter((text) => text !== "")
      : textsAt(object, "serviceCidr", "serviceCidr");
  return texts.map((text, i) => networkOf(read(text, `serviceCidr[${i}]`, parseIpPrefix)));
}

/**
 * The attachments that GC spares; undefined when the runtime does not say, which differs from an
 * empty list.
 */
function validAttachments(object: JsonObject): readonly AttachmentName[] | undefined {
  const key = "cni.dev/valid-attachments";
  // libcni sends it under a second name too; a null is its empty list.
  const present = [key, "cni.dev/attachments"].find((name) => Object.hasOwn(object, name));
  if (present === undefined) return undefined;
  return listAt(object, present, present).map((entry, i) => {
    const at = `${present}[${i}]`;
    const attachment = asObject(entry, at);
    const containerId = textAt(attachment, "containerID", `${at}.containerID`);
    const ifName = textAt(attachment, "ifname", `${at}.ifname`);
    // Half a name spares nothing, and what was meant would be taken away.
    if (containerId === undefined || ifName === undefined)
      throw refusal(`${at} names no attachment`, {
        cni: cniError.config,
        field: at,
        hint: "Write containerID and ifname of each attachment in use",
      });
    return { containerId, ifName };
  });
}
