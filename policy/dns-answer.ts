import { type Ip, ipFromBytes } from "../core/address.ts";
import { inRanges } from "./ranges.ts";
import { isInternal } from "../core/special-addresses.ts";
import type { DecisionList } from "./compile.ts";
import { latin1 } from "./gathered.ts";

/** What an answer has for a pod. */
export type FilteredAnswer =
  /** It cannot be read to its end. */
  | { readonly kind: "unreadable" }
  /** Every address in it leads inside. */
  | { readonly kind: "rebinding"; readonly addresses: readonly Ip[] }
  | {
      readonly kind: "answer";
      /** The answer, without what is not for the pod. */
      readonly bytes: Uint8Array;
      /** The name's addresses, which must hold before the pod has the answer. */
      readonly addresses: readonly Ip[];
      /** For how long they hold. */
      readonly seconds: number;
      /** Addresses inside, which were taken out. */
      readonly removed: readonly Ip[];
    };

/**
 * Addresses of a name hold for its time to live, in these bounds: long enough to connect, and not
 * so long that a name keeps what another host has by now.
 */
const holdSeconds = { least: 60, most: 3600 } as const;
/** A client connects a little after its answer has ended. */
const graceSeconds = 30;
const mostRecords = 500;

// RFC 1035 section 3.2.2, RFC 3596, RFC 9460.
const types = { a: 1, cname: 5, aaaa: 28, svcb: 64, https: 65, any: 255 } as const;
// RFC 9460 section 14.3.2, RFC 9848.
const keys = { mandatory: 0, ipv4hint: 4, ech: 5, ipv6hint: 6 } as const;

/** The question of a client, as `daemon/dns` reads it. */
interface AskedQuery {
  /** Where in the message the question ends. */
  readonly questionEnd: number;
  /** The client speaks EDNS. */
  readonly edns: boolean;
}

interface DnsRecord {
  /** Lower case, each label in front of a dot. */
  readonly owner: string;
  readonly type: number;
  readonly class: number;
  readonly seconds: number;
  /** In the message, where names may be compressed. */
  readonly data: Uint8Array;
  /** Offset of the data. */
  readonly at: number;
}

/**
 * Takes out of an upstream server's answer what is not for a pod whose policy has domains:
 * addresses inside that no rule allows (rebinding), in A, AAAA and the hints of HTTPS and SVCB
 * alike; the keys of ECH, which would hide names; HTTPS and SVCB records that lead to other names.
 * Only addresses that belong to the asked name, over its chain of CNAMEs, are the name's. An answer
 * to another type of question passes as it is. `isInside` says which addresses those are. Pure.
 */
export function filterAnswer(
  message: Uint8Array,
  query: AskedQuery,
  list: DecisionList,
  isInside: (ip: Ip) => boolean = isInternal,
): FilteredAnswer {
  const { questionEnd } = query;
  const reader = new Reader(message);
  const question = reader.name(12);
  if (message.length < questionEnd || question === undefined) return { kind: "unreadable" };
  const records = reader.records(questionEnd);
  if (records === undefined) return { kind: "unreadable" };
  const chain = chainFrom(question.text, records, reader);
  const removed: Ip[] = [];
  const addresses = new Set<Ip>();
  const passes = (ip: Ip): boolean => !isInside(ip) || mayLead(list, ip) || removed.push(ip) === 0;
  const kept = records.flatMap((record): Kept[] => {
    if (!chain.has(record.owner)) return [];
    switch (record.type) {
      case types.a:
      case types.aaaa: {
        if (record.data.length !== (record.type === types.a ? 4 : 16)) return [];
        const ip = ipFromBytes(record.data);
        if (!passes(ip)) return [];
        addresses.add(ip);
        return [record];
      }
      case types.https:
      case types.svcb: {
        const found: Ip[] = [];
        const data = serviceData(record.data, (ip) => passes(ip) && found.push(ip) > 0);
        if (data === undefined) return [];
        for (const ip of found) addresses.add(ip);
        return [{ ...record, data }];
      }
      case types.cname: {
        const target = reader.name(record.at);
        return target === undefined ? [] : [{ ...record, data: wire(target.text) }];
      }
      default:
        return [];
    }
  });
  if (addresses.size === 0 && removed.length > 0) return { kind: "rebinding", addresses: removed };
  const seconds = Math.min(holdSeconds.most, ...kept.map((each) => each.seconds));
  return {
    kind: "answer",
    bytes:
      records.length > 0 && isForAddresses(message, questionEnd)
        ? rebuilt(message, query, kept)
        : message,
    addresses: [...addresses],
    seconds: Math.max(holdSeconds.least, seconds) + graceSeconds,
    removed,
  };
}

type Kept = Pick<DnsRecord, "owner" | "type" | "class" | "seconds" | "data">;

/** Addresses inside are for rules with addresses: no name leads there by itself. */
const mayLead = ({ entries }: DecisionList, ip: Ip): boolean =>
  entries.some(
    ({ verdict, to }) => verdict === "allow" && to !== undefined && inRanges(to.ranges, ip),
  );

const addressTypes: readonly number[] = [types.a, types.aaaa, types.https, types.svcb, types.any];
const isForAddresses = (message: Uint8Array, questionEnd: number): boolean =>
  addressTypes.includes(uint16(message, questionEnd - 4));

const uint16 = (bytes: Uint8Array, at: number): number =>
  ((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0);
const u16 = (value: number): readonly number[] => [(value >> 8) & 255, value & 255];
const u32 = (value: number): readonly number[] => [...u16(value >>> 16), ...u16(value)];

/** The asked name, and all that it is another name of. */
function chainFrom(
  asked: string,
  records: readonly DnsRecord[],
  reader: Reader,
): ReadonlySet<string> {
  const targets = new Map<string, string>();
  for (const { owner, type, at } of records) {
    const target = type === types.cname ? reader.name(at) : undefined;
    if (target !== undefined && !targets.has(owner)) targets.set(owner, target.text);
  }
  const chain = new Set<string>();
  for (let name: string | undefined = asked; name !== undefined && !chain.has(name); ) {
    chain.add(name);
    name = targets.get(name);
  }
  return chain;
}

/**
 * The data of an HTTPS or SVCB record without keys of ECH and hints that do not pass; undefined
 * when nothing is left of it for the pod: it leads to another name, or cannot do without ECH.
 */
function serviceData(data: Uint8Array, pass: (ip: Ip) => boolean): Uint8Array | undefined {
  const priority = uint16(data, 0);
  if (data.length < 3 || priority === 0 || data[2] !== 0) return undefined;
  const parts: number[] = [...data.subarray(0, 3)];
  for (let at = 3; at < data.length; ) {
    const [key, length] = [uint16(data, at), uint16(data, at + 2)];
    const value = data.subarray(at + 4, at + 4 + length);
    if (value.length < length || at + 4 > data.length) return undefined;
    at += 4 + length;
    if (key === keys.ech) continue;
    if (key === keys.mandatory && mandates(value, keys.ech)) return undefined;
    const hint = key === keys.ipv4hint ? 4 : key === keys.ipv6hint ? 16 : undefined;
    const left = hint === undefined ? [...value] : hints(value, hint, pass);
    if (hint === undefined || left.length > 0)
      parts.push(...u16(key), ...u16(left.length), ...left);
    else if (mandatesIn(data, key)) return undefined;
  }
  return Uint8Array.from(parts);
}

const mandates = (value: Uint8Array, key: number): boolean => {
  for (let at = 0; at < value.length; at += 2) if (uint16(value, at) === key) return true;
  return false;
};

/** Whether the record's first parameter, the only place for it, makes a key mandatory. */
const mandatesIn = (data: Uint8Array, key: number): boolean =>
  uint16(data, 3) === keys.mandatory && mandates(data.subarray(7, 7 + uint16(data, 5)), key);

function hints(value: Uint8Array, size: number, pass: (ip: Ip) => boolean): readonly number[] {
  const left: number[] = [];
  for (let at = 0; at + size <= value.length; at += size) {
    const bytes = value.subarray(at, at + size);
    if (pass(ipFromBytes(bytes))) left.push(...bytes);
  }
  return left;
}

/** An OPT record without options, for datagrams of 1,232 bytes (RFC 6891 section 6.1.2). */
const opt = [0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0] as const;

/**
 * Header and question as they came, the kept records with their names in full, and no others. Times
 * to live end before the addresses do.
 */
function rebuilt(
  message: Uint8Array,
  { questionEnd, edns }: AskedQuery,
  kept: readonly Kept[],
): Uint8Array {
  const records = kept.flatMap((record) => [
    ...wire(record.owner),
    ...u16(record.type),
    ...u16(record.class),
    ...u32(Math.min(record.seconds, holdSeconds.most)),
    ...u16(record.data.length),
    ...record.data,
  ]);
  const bytes = Uint8Array.from([
    ...message.subarray(0, questionEnd),
    ...records,
    ...(edns ? opt : []),
  ]);
  bytes.set([...u16(kept.length), 0, 0, 0, edns ? 1 : 0], 6);
  // Signed data (AD) it is no more.
  bytes[3] = (bytes[3] ?? 0) & ~0x20;
  return bytes;
}

/** A name's labels, uncompressed. Its text has one character for each byte. */
function wire(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const label of text.split("\u0000").slice(0, -1))
    bytes.push(label.length, ...Array.from(label, (c) => c.charCodeAt(0)));
  return Uint8Array.from([...bytes, 0]);
}

/** Reads names and records of a message (RFC 1035 section 4.1). */
class Reader {
  readonly #message: Uint8Array;

  constructor(message: Uint8Array) {
    this.#message = message;
  }

  /**
   * The name at an offset, and where it ends there; undefined when it is none. Each label of the
   * text ends by a zero, which is in no label that passes.
   */
  name(from: number): { readonly text: string; readonly end: number } | undefined {
    const message = this.#message;
    let [text, at, end] = ["", from, 0];
    // A pointer leads before what has been read, so that none leads in a circle.
    for (let least = from; ; ) {
      const length = message[at];
      if (length === undefined || text.length > 255) return undefined;
      if (length >= 0xc0) {
        const to = uint16(message, at) & 0x3fff;
        end ||= at + 2;
        if (to >= least || to < 12 || at + 1 >= message.length) return undefined;
        [at, least] = [to, to];
        continue;
      }
      if (length > 63 || at + 1 + length > message.length) return undefined;
      if (length === 0) return { text, end: end || at + 1 };
      const label = latin1(message.subarray(at + 1, at + 1 + length));
      if (label.includes("\u0000")) return undefined;
      text += `${label.replaceAll(/[A-Z]/g, (c) => c.toLowerCase())}\u0000`;
      at += 1 + length;
    }
  }

  /** The records of the answer; undefined when the message ends within one. */
  records(from: number): readonly DnsRecord[] | undefined {
    const message = this.#message;
    const count = uint16(message, 6);
    if (count > mostRecords) return undefined;
    const found: DnsRecord[] = [];
    for (let nth = 0, at = from; nth < count; nth++) {
      const owner = this.name(at);
      if (owner === undefined || owner.end + 10 > message.length) return undefined;
      const { end } = owner;
      const data = message.subarray(end + 10, end + 10 + uint16(message, end + 8));
      at = end + 10 + uint16(message, end + 8);
      if (at > message.length) return undefined;
      const seconds = uint16(message, end + 4) * 65_536 + uint16(message, end + 6);
      found.push({
        owner: owner.text,
        type: uint16(message, end),
        class: uint16(message, end + 2),
        // Times from 2^31 on count as zero (RFC 2181 section 8).
        seconds: seconds > 0x7fff_ffff ? 0 : seconds,
        data,
        at: end + 10,
      });
    }
    return found;
  }
}
