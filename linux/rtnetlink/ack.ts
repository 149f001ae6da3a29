import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { type Attributes, parseAttributes, textOf } from "./attributes.ts";
import { errnoName } from "./errno.ts";
import {
  headerSize,
  NLM_F_ACK_TLVS,
  NLM_F_CAPPED,
  NLMSG_DONE,
  NLMSG_ERROR,
  type NetlinkMessage,
} from "./message.ts";
import { optional } from "./optional.ts";
import { malformed, Reader } from "./reader.ts";

// include/uapi/linux/netlink.h, enum nlmsgerr_attrs (Linux 6.1)
const NLMSGERR_ATTR_MSG = 1;
const NLMSGERR_ATTR_OFFS = 2;
const NLMSGERR_ATTR_MISS_TYPE = 5;
const NLMSGERR_ATTR_MISS_NEST = 6;

/** The kernel's verdict on a request. */
export interface Ack {
  /** 0 for success, else a positive error number. */
  readonly errno: number;
  /** The kernel's own words (NETLINK_EXT_ACK); a warning when the request succeeded. */
  readonly text?: string;
  /** Where in the request, header included, the attribute at fault is. */
  readonly offset?: number;
  /** Type of an attribute that is missing. */
  readonly missing?: number;
  /** Where the nest is that lacks it. */
  readonly missingIn?: number;
}

/**
 * Parses NLMSG_ERROR, which an ack is too, or NLMSG_DONE, the end of a dump. Throws
 * `NETLINK_FAILED`.
 */
export function parseAck(message: NetlinkMessage): Ack {
  const reader = new Reader(message.payload, "an ack");
  // Kernels before 2.6 ended dumps without an error number; 4 bytes have been there ever since.
  if (message.type === NLMSG_DONE) {
    if (message.payload.length < 4) return { errno: 0 };
    return verdict(reader.i32(0), message.flags, reader.rest(4));
  }
  if (message.type !== NLMSG_ERROR) throw malformed(`type ${message.type} is no ack`);
  // struct nlmsgerr: the error, the request's header, and unless capped the request itself.
  const requestSize = reader.u32(4);
  if (requestSize > 0x7fffffff) throw malformed(`an ack of a request of ${requestSize} bytes`);
  const copied = (message.flags & NLM_F_CAPPED) !== 0 ? headerSize : (requestSize + 3) & ~3;
  const withAttributes = (message.flags & NLM_F_ACK_TLVS) !== 0;
  return verdict(
    reader.i32(0),
    message.flags,
    withAttributes ? reader.rest(4 + copied) : new Uint8Array(0),
  );
}

function verdict(error: number, flags: number, rest: Uint8Array): Ack {
  const errno = error < 0 ? -error : 0;
  if ((flags & NLM_F_ACK_TLVS) === 0) return { errno };
  const attributes = parseAttributes(rest);
  return {
    errno,
    ...optionalText(attributes),
    ...optional("offset", attributes.u32(NLMSGERR_ATTR_OFFS)),
    ...optional("missing", attributes.u32(NLMSGERR_ATTR_MISS_TYPE)),
    ...optional("missingIn", attributes.u32(NLMSGERR_ATTR_MISS_NEST)),
  };
}

function optionalText(attributes: Attributes): { text?: string } {
  const value = attributes.get(NLMSGERR_ATTR_MSG);
  return value === undefined ? {} : { text: textOf(value) };
}

const hints: Readonly<Record<string, string>> = {
  EPERM: "Run podnetd as root, or give it CAP_NET_ADMIN",
  EXFULL: "A Linux bridge takes 1,023 ports; use another network",
};

/**
 * The error for a refused request: `Cannot set MTU ...: EINVAL (mtu less than device minimum)`.
 * Details: `errno` the name, `kernel` the kernel's words, `offset` of the attribute at fault.
 */
export function ackError(what: string, ack: Ack): PodnetError {
  const errno = errnoName(ack.errno);
  const words = ack.text === undefined || ack.text === "" ? undefined : printable(ack.text);
  const hint = hints[errno];
  return new PodnetError(
    "NETLINK_FAILED",
    `${what}: ${errno}${words === undefined ? "" : ` (${words})`}`,
    {
      ...(hint === undefined ? {} : { hint }),
      details: {
        errno,
        ...(words === undefined ? {} : { kernel: words }),
        ...optional("offset", ack.offset),
        ...optional("missing", ack.missing),
      },
    },
  );
}
