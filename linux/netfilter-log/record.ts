import { type Ip, ipFromBytes } from "../../core/address.ts";
import { Attributes } from "../rtnetlink/attributes.ts";
import { Reader } from "../rtnetlink/reader.ts";
import { Writer } from "../rtnetlink/writer.ts";

// include/uapi/linux/netfilter/nfnetlink_log.h (Linux 6.1)
const NFNL_SUBSYS_ULOG = 4;
export const LOG_PACKET = NFNL_SUBSYS_ULOG << 8;
export const LOG_CONFIG = LOG_PACKET | 1;
const NFULA_MARK = 2;
const NFULA_IFINDEX_INDEV = 4;
const NFULA_IFINDEX_OUTDEV = 5;
const NFULA_PAYLOAD = 9;
const NFULA_PREFIX = 10;
const NFULA_CFG_CMD = 1;
const NFULA_CFG_TIMEOUT = 4;
const NFULNL_CFG_CMD_BIND = 1;
/** struct nfgenmsg { u8 family; u8 version; be16 res_id; } */
const genmsgSize = 4;

/** The start of a packet, as far as it was logged. Ports are absent where it has none. */
export interface LoggedPacket {
  readonly source: Ip;
  readonly destination: Ip;
  /** The number in the IP header, behind IPv6's extension headers. */
  readonly protocol: number;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
}

/** What a rule with `log group` has logged. */
export interface LogRecord {
  /** The rule's own words. */
  readonly prefix: string;
  readonly mark: number;
  /** Indexes of the links that it came in by, and was to leave by; 0 without one. */
  readonly inLink: number;
  readonly outLink: number;
  /** Undefined for what is no IP packet with a whole header. */
  readonly packet: LoggedPacket | undefined;
}

/** Asks for what is logged to a group. */
export const bindGroup = (group: number): Uint8Array =>
  toGroup(group).attribute(NFULA_CFG_CMD, Uint8Array.of(NFULNL_CFG_CMD_BIND)).finish();

/** Bounds how long the kernel gathers records of a group, in hundredths of a second below 256. */
export const gatherFor = (group: number, hundredths: number): Uint8Array =>
  toGroup(group)
    .attribute(NFULA_CFG_TIMEOUT, Uint8Array.of(0, 0, 0, hundredths))
    .finish();

const toGroup = (group: number): Writer =>
  new Writer().raw(Uint8Array.of(0, 0, group >> 8, group & 0xff));

/** Parses the payload of LOG_PACKET. Throws `NETLINK_FAILED`. */
export function parseLogRecord(payload: Uint8Array): LogRecord {
  const attributes = new Attributes(new Reader(payload, "a logged packet").rest(genmsgSize));
  const bytes = attributes.get(NFULA_PAYLOAD);
  return {
    prefix: attributes.text(NFULA_PREFIX) ?? "",
    mark: attributes.u32be(NFULA_MARK) ?? 0,
    inLink: attributes.u32be(NFULA_IFINDEX_INDEV) ?? 0,
    outLink: attributes.u32be(NFULA_IFINDEX_OUTDEV) ?? 0,
    packet: bytes === undefined ? undefined : parsePacket(bytes),
  };
}

const withPorts: ReadonlySet<number> = new Set([6, 17, 132]);
/** Hop-by-hop, routing, fragment, destination options (RFC 8200). */
const extensions: ReadonlySet<number> = new Set([0, 43, 44, 60]);
const fragmentHeader = 44;
/** More extension headers than that hide what follows. */
const mostExtensions = 8;

/** Reads addresses, protocol and ports from the start of an IP packet. Hostile bytes. Pure. */
export function parsePacket(bytes: Uint8Array): LoggedPacket | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const version = view.byteLength === 0 ? 0 : view.getUint8(0) >> 4;
  if (version === 4) return parse4(view);
  return version === 6 ? parse6(view) : undefined;
}

function parse4(view: DataView): LoggedPacket | undefined {
  const headerSize = (view.getUint8(0) & 15) * 4;
  if (view.byteLength < 20 || headerSize < 20) return undefined;
  const isFirst = (view.getUint16(6) & 0x1fff) === 0;
  return packetOf(view, 12, 4, view.getUint8(9), isFirst ? headerSize : undefined);
}

function parse6(view: DataView): LoggedPacket | undefined {
  if (view.byteLength < 40) return undefined;
  let protocol = view.getUint8(6);
  let at: number | undefined = 40;
  for (let i = 0; i < mostExtensions && at !== undefined && extensions.has(protocol); i++) {
    if (at + 8 > view.byteLength) break;
    const isFragment = protocol === fragmentHeader;
    const isLater: boolean = isFragment && view.getUint16(at + 2) >> 3 !== 0;
    const size: number = isFragment ? 8 : (view.getUint8(at + 1) + 1) * 8;
    protocol = view.getUint8(at);
    at = isLater ? undefined : at + size;
  }
  return packetOf(view, 8, 16, protocol, at);
}

/**
 * `ends`: where the addresses are, `size` bytes each. `at`: where the header behind those of IP
 * begins; undefined where there is none.
 */
function packetOf(
  view: DataView,
  ends: number,
  size: number,
  protocol: number,
  at: number | undefined,
): LoggedPacket {
  const ip = (from: number): Ip =>
    ipFromBytes(new Uint8Array(view.buffer, view.byteOffset + from, size));
  const packet = { source: ip(ends), destination: ip(ends + size), protocol };
  if (at === undefined || !withPorts.has(protocol) || at + 4 > view.byteLength) return packet;
  return {
    ...packet,
    sourcePort: view.getUint16(at),
    destinationPort: view.getUint16(at + 2),
  };
}
