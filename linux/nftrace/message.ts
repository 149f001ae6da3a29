import { type Ip, ipFromBytes } from "../../core/address.ts";
import { parseAttributes } from "../rtnetlink/attributes.ts";
import { optional } from "../rtnetlink/optional.ts";
import { Reader } from "../rtnetlink/reader.ts";

// include/uapi/linux/netfilter/nfnetlink.h, nf_tables.h (Linux 6.1)
const NFNL_SUBSYS_NFTABLES = 10;
const NFT_MSG_TRACE = (NFNL_SUBSYS_NFTABLES << 8) | 17;
/** The multicast group of trace messages. */
export const NFNLGRP_NFTRACE = 9;
const NFTA_TRACE_TABLE = 1;
const NFTA_TRACE_CHAIN = 2;
const NFTA_TRACE_RULE_HANDLE = 3;
const NFTA_TRACE_TYPE = 4;
const NFTA_TRACE_VERDICT = 5;
const NFTA_TRACE_ID = 6;
const NFTA_TRACE_NETWORK_HEADER = 8;
const NFTA_TRACE_TRANSPORT_HEADER = 9;
const NFTA_TRACE_MARK = 14;
const NFTA_TRACE_POLICY = 16;
const NFTA_VERDICT_CODE = 1;
const NFTA_VERDICT_CHAIN = 2;
/** struct nfgenmsg { u8 family; u8 version; be16 res_id; } */
const genmsgSize = 4;

// include/uapi/linux/netfilter.h: NFPROTO_*
const families = { 1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6" } as const;
const NFT_TRACETYPE_POLICY = 1;
// NF_* and enum nft_verdicts, as 32 bits.
const verdicts: Readonly<Record<number, string>> = {
  0: "drop",
  1: "accept",
  2: "stolen",
  3: "queue",
  4: "repeat",
  [-1 >>> 0]: "continue",
  [-2 >>> 0]: "break",
  [-3 >>> 0]: "jump",
  [-4 >>> 0]: "goto",
  [-5 >>> 0]: "return",
};

/** A rule that a packet matched, or the end of a chain that it came to. */
export interface TraceMessage {
  /** Of one packet in one layer: it has another one after its bridge gave it to the host. */
  readonly id: number;
  /** Of the table. */
  readonly family: (typeof families)[keyof typeof families];
  readonly table: string;
  readonly chain: string;
  /** Of the rule; absent at the end of a chain. */
  readonly handle?: bigint;
  /** At the end of a chain of a hook its policy decides; from another one the packet goes back. */
  readonly isPolicy: boolean;
  /** A verdict's name: `accept`, `jump`. */
  readonly verdict: string;
  /** Where a jump leads. */
  readonly target?: string;
  /** The packet's mark, unless 0. */
  readonly mark?: number;
  /** Said where the packet comes to a chain of a hook. */
  readonly packet?: TracedHeader;
}

/** What a packet's headers say. */
export interface TracedHeader {
  readonly source: Ip;
  readonly destination: Ip;
  /** The number in the IP header. */
  readonly protocol: number;
  /** Absent for ICMP and for fragments. */
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  /** Differs between packets of one flow: IPv4's identification, the numbers of TCP and ICMP. */
  readonly serial: string;
}

/**
 * Parses a message of that group; undefined for other messages, and for a verdict or family that is
 * not known. Throws `NETLINK_FAILED`. Pure.
 */
export function parseTrace(type: number, payload: Uint8Array): TraceMessage | undefined {
  if (type !== NFT_MSG_TRACE) return undefined;
  const reader = new Reader(payload, "a trace");
  const attributes = parseAttributes(reader.rest(genmsgSize));
  const family = families[reader.u8(0) as keyof typeof families];
  const said = attributes.nested(NFTA_TRACE_VERDICT);
  // (The policy of a chain is a number of its own.)
  const code = said?.u32be(NFTA_VERDICT_CODE) ?? attributes.u32be(NFTA_TRACE_POLICY);
  const verdict = code === undefined ? undefined : verdicts[code];
  const id = attributes.u32be(NFTA_TRACE_ID);
  const [table, chain] = [attributes.text(NFTA_TRACE_TABLE), attributes.text(NFTA_TRACE_CHAIN)];
  if (family === undefined || verdict === undefined || id === undefined) return undefined;
  if (table === undefined || chain === undefined) return undefined;
  const mark = attributes.u32be(NFTA_TRACE_MARK);
  return {
    id,
    family,
    table,
    chain,
    verdict,
    isPolicy: attributes.u32be(NFTA_TRACE_TYPE) === NFT_TRACETYPE_POLICY,
    ...optional("handle", handleOf(attributes.get(NFTA_TRACE_RULE_HANDLE))),
    ...optional("target", said?.text(NFTA_VERDICT_CHAIN)),
    ...(mark === undefined || mark === 0 ? {} : { mark }),
    ...optional(
      "packet",
      headerOf(
        attributes.get(NFTA_TRACE_NETWORK_HEADER),
        attributes.get(NFTA_TRACE_TRANSPORT_HEADER),
      ),
    ),
  };
}

const viewOf = ({ buffer, byteOffset, byteLength }: Uint8Array): DataView =>
  new DataView(buffer, byteOffset, byteLength);

const handleOf = (bytes: Uint8Array | undefined): bigint | undefined =>
  bytes?.length === 8 ? viewOf(bytes).getBigUint64(0) : undefined;

const [ICMP, TCP, UDP, SCTP, ICMP6] = [1, 6, 17, 132, 58] as const;

/** Undefined where it is no packet of IPv4 or IPv6 (RFC 791, RFC 8200), or not whole. */
function headerOf(
  network: Uint8Array | undefined,
  transport: Uint8Array | undefined,
): TracedHeader | undefined {
  const version = (network?.[0] ?? 0) >> 4;
  if (network === undefined || (version !== 4 && version !== 6)) return undefined;
  if (network.length < (version === 4 ? 20 : 40)) return undefined;
  const [source, destination, protocol, own] =
    version === 4
      ? [network.subarray(12, 16), network.subarray(16, 20), network[9] ?? 0, network.slice(4, 6)]
      : [network.subarray(8, 24), network.subarray(24, 40), network[6] ?? 0, new Uint8Array(0)];
  const numbers = transport === undefined ? {} : portsOf(protocol, transport);
  // Of ICMP the identifier and number of an echo; of TCP the sequence number.
  const counted = [ICMP, ICMP6, TCP].some((each) => each === protocol);
  const serial = [...own, ...(counted ? (transport?.subarray(4, 8) ?? []) : [])];
  return {
    source: ipFromBytes(source),
    destination: ipFromBytes(destination),
    protocol,
    ...numbers,
    serial: serial.join("."),
  };
}

function portsOf(
  protocol: number,
  transport: Uint8Array,
): Pick<TracedHeader, "sourcePort" | "destinationPort"> {
  const has = [TCP, UDP, SCTP].some((each) => each === protocol) && transport.length >= 4;
  if (!has) return {};
  const view = viewOf(transport);
  return { sourcePort: view.getUint16(0), destinationPort: view.getUint16(2) };
}
