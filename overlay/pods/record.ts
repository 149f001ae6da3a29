import { type IpPrefix, parseIpPrefix } from "../../core/address.ts";
import {
  type IfName,
  type NetworkName,
  parseIfName,
  parseNetworkName,
  type PodId,
  parsePodId,
  type PodName,
  parsePodName,
} from "../../core/names.ts";
import { jsonOf } from "../flannel/json.ts";
import { readable, unreadable } from "./readable.ts";

/** The data that a host publishes about one of its pods. */
export interface PodRecord {
  readonly id: PodId;
  readonly name: PodName;
  readonly state: RecordedState;
  readonly createdMs: number;
  readonly labels: Readonly<Record<string, string>>;
  readonly interfaces: readonly RecordedInterface[];
}

interface RecordedInterface {
  /** Its host's name for it; undefined on a foreign bridge. */
  readonly network: NetworkName | undefined;
  /** The overlay that network is part of, which has the same name on every host. */
  readonly overlay: NetworkName | undefined;
  /** In the guest. */
  readonly name: IfName;
  readonly addresses: readonly IpPrefix[];
}

/** The data that a host publishes about itself. */
export interface HostRecord {
  readonly name: string;
  /** The key of its lease in each overlay. */
  readonly leases: readonly string[];
}

const recordedStates = [
  "creating",
  "running",
  "paused",
  "stopping",
  "stopped",
  "failed",
  "deleting",
] as const;
export type RecordedState = (typeof recordedStates)[number];

/**
 * The version of the format below: a later podnet that writes another format increments it, and
 * earlier ones skip its records.
 */
const version = 1;
/** Longest that is read, characters; more than any pod's labels and addresses come to. */
const longest = 65_536;
const most = { interfaces: 32, addresses: 64, labels: 64, leases: 64 } as const;

export const podRecordText = ({ interfaces, ...rest }: PodRecord): string =>
  JSON.stringify({
    version,
    ...rest,
    // Undefined members are left out.
    interfaces: interfaces.map(({ network, overlay, name, addresses }) => ({
      network,
      overlay,
      name,
      addresses,
    })),
  });

export const hostRecordText = ({ name, leases }: HostRecord): string =>
  JSON.stringify({ version, name, leases });

/**
 * Reads what another host published of a pod; undefined when it cannot be read, or a newer podnet
 * has written it.
 */
export function parsePodRecord(text: string): PodRecord | undefined {
  const read = recordOf(text);
  if (read === undefined) return undefined;
  const { id, name, state, createdMs, labels, interfaces } = read;
  const known = recordedStates.find((each) => each === state);
  const created = typeof createdMs === "number" && Number.isSafeInteger(createdMs);
  if (known === undefined || !created || createdMs < 0) return undefined;
  return readable(() => ({
    id: parsePodId(textIn(id)),
    name: parsePodName(textIn(name)),
    state: known,
    // JSON has a negative zero, which nothing is written with.
    createdMs: createdMs || 0,
    labels: labelsOf(labels),
    interfaces: listIn(interfaces, most.interfaces).map(interfaceOf),
  }));
}

/** Reads what another host published of itself; undefined as for a pod. */
export function parseHostRecord(text: string): HostRecord | undefined {
  const read = recordOf(text);
  return (
    read &&
    readable(() => ({
      name: shortIn(read["name"], 255),
      leases: listIn(read["leases"], most.leases).map((each) => shortIn(each, 512)),
    }))
  );
}

type Unknown = Readonly<Record<string, unknown>>;

function recordOf(text: string): Unknown | undefined {
  const read = text.length > longest ? undefined : jsonOf(text);
  if (typeof read !== "object" || read === null || Array.isArray(read)) return undefined;
  const fields = read as Unknown;
  return fields["version"] === version ? fields : undefined;
}

function interfaceOf(value: unknown): RecordedInterface {
  const { network, overlay, name, addresses } = objectIn(value);
  return {
    network: network === undefined ? undefined : parseNetworkName(textIn(network)),
    overlay: overlay === undefined ? undefined : parseNetworkName(textIn(overlay)),
    name: parseIfName(textIn(name)),
    addresses: listIn(addresses, most.addresses).map((each) => parseIpPrefix(textIn(each))),
  };
}

function labelsOf(value: unknown): PodRecord["labels"] {
  const entries = Object.entries(objectIn(value));
  if (entries.length > most.labels) throw unreadable();
  return Object.fromEntries(
    entries.map(([key, text]) => [shortIn(key, 63), shortIn(text, 255)] as const),
  );
}

function objectIn(value: unknown): Unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw unreadable();
  return value as Unknown;
}

function textIn(value: unknown): string {
  if (typeof value !== "string") throw unreadable();
  return value;
}

function shortIn(value: unknown, length: number): string {
  const text = textIn(value);
  if (text.length > length) throw unreadable();
  return text;
}

function listIn(value: unknown, length: number): readonly unknown[] {
  if (!Array.isArray(value) || value.length > length) throw unreadable();
  return value as readonly unknown[];
}
