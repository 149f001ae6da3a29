import { parseAttributes } from "./attributes.ts";
import { RTM_GETLINK } from "./constants.ts";
import {
  IFLA_IFNAME,
  IFLA_INFO_KIND,
  IFLA_LINKINFO,
  IFLA_STATS64,
} from "./links/link-attributes.ts";
import { NLM_F_DUMP, type Request } from "./message.ts";
import { malformed, Reader } from "./reader.ts";
import { Writer } from "./writer.ts";

/** Traffic of a link since it was made, as the host sees it. */
export interface LinkCounters {
  readonly rxPackets: bigint;
  readonly txPackets: bigint;
  readonly rxBytes: bigint;
  readonly txBytes: bigint;
  readonly rxErrors: bigint;
  readonly txErrors: bigint;
  readonly rxDropped: bigint;
  readonly txDropped: bigint;
}

/** A link with its counters. Another index is another link, whatever its name. */
export interface CountedLink {
  readonly index: number;
  readonly name: string;
  readonly counters: LinkCounters;
}

// struct ifinfomsg: u8 family, u8, u16 type, s32 index, u32 flags, u32 change.
const ifinfomsgSize = 16;
/** The first eight of struct rtnl_link_stats64 (include/uapi/linux/if_link.h, Linux 6.1). */
const countersSize = 64;

const header = (): Writer => new Writer().u8(0).u8(0).u16(0).i32(0).u32(0).u32(0);

/** Asks for one link with its counters. `ENODEV` when there is none. */
export const getCounters = (name: string): Request => ({
  type: RTM_GETLINK,
  flags: 0,
  payload: header().attributeText(IFLA_IFNAME, name).finish(),
  what: `Cannot read the counters of "${name}"`,
});

/** Asks for all taps, and whatever else the kernel gives unasked. */
export const getTapCounters = (): Request => ({
  type: RTM_GETLINK,
  flags: NLM_F_DUMP,
  payload: header()
    .nested(IFLA_LINKINFO, (info) => info.attributeText(IFLA_INFO_KIND, "tun"))
    .finish(),
  what: "Cannot read the counters of taps",
});

/**
 * Parses the payload of RTM_NEWLINK; undefined for a link without counters. Throws
 * `NETLINK_FAILED`.
 */
export function parseCounters(payload: Uint8Array): CountedLink | undefined {
  const index = new Reader(payload, "a link").i32(4);
  const attributes = parseAttributes(new Reader(payload, "a link").rest(ifinfomsgSize));
  const value = attributes.get(IFLA_STATS64);
  if (value === undefined) return undefined;
  if (value.length < countersSize) throw malformed(`counters of ${value.length} bytes, too few`);
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  const at = (place: number): bigint => view.getBigUint64(8 * place, true);
  return {
    index,
    name: attributes.text(IFLA_IFNAME) ?? "",
    counters: {
      rxPackets: at(0),
      txPackets: at(1),
      rxBytes: at(2),
      txBytes: at(3),
      rxErrors: at(4),
      txErrors: at(5),
      rxDropped: at(6),
      txDropped: at(7),
    },
  };
}
