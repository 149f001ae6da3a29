import { malformed } from "./reader.ts";

// include/uapi/linux/netlink.h (Linux 6.1)
export const NLMSG_NOOP = 1;
export const NLMSG_ERROR = 2;
export const NLMSG_DONE = 3;

export const NLM_F_REQUEST = 0x01;
export const NLM_F_ACK = 0x04;
export const NLM_F_ECHO = 0x08;
export const NLM_F_DUMP_INTR = 0x10;
export const NLM_F_DUMP = 0x300;
export const NLM_F_REPLACE = 0x100;
export const NLM_F_EXCL = 0x200;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;
/** In an ack: the request was not copied whole behind the error. */
export const NLM_F_CAPPED = 0x100;
/** In an ack: attributes with text follow. */
export const NLM_F_ACK_TLVS = 0x200;

/** Size of struct nlmsghdr. */
export const headerSize = 16;

/** One message between two headers. */
export interface NetlinkMessage {
  readonly type: number;
  readonly flags: number;
  /** Sequence number of the request it answers; 0 for events. */
  readonly seq: number;
  /** Port id of the socket that asked; 0 for events. */
  readonly portId: number;
  readonly payload: Uint8Array;
}

/** A request before it is sent: the socket adds the sequence number. */
export interface Request {
  readonly type: number;
  /** Flags alongside NLM_F_REQUEST and NLM_F_ACK; NLM_F_DUMP for a listing. */
  readonly flags: number;
  readonly payload: Uint8Array;
  /** Start of the error's message, in the user's words: `Cannot add bridge "hyper0"`. */
  readonly what: string;
  /** The kernel takes milliseconds for it (it waits for RCU), so it belongs on another thread. */
  readonly slow?: boolean;
}

/** The bytes of a request. A dump gets no ack of its own: it ends with NLMSG_DONE. */
export function encodeRequest(request: Request, seq: number): Uint8Array {
  const dump = (request.flags & NLM_F_DUMP) === NLM_F_DUMP && isGet(request.type);
  const flags = request.flags | NLM_F_REQUEST | (dump ? 0 : NLM_F_ACK);
  return encodeMessage({ type: request.type, flags, seq, portId: 0, payload: request.payload });
}

// Types come in fours, from RTM_BASE = 16: NEW, DEL, GET, SET.
const isGet = (type: number): boolean => (type & 3) === 2;

/** Whether a request is answered by a list. */
export const isDump = (request: Request): boolean =>
  isGet(request.type) && (request.flags & NLM_F_DUMP) === NLM_F_DUMP;

/** Header and payload, padded to four bytes. */
export function encodeMessage(message: NetlinkMessage): Uint8Array {
  const size = headerSize + message.payload.length;
  const bytes = new Uint8Array((size + 3) & ~3);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, size, true);
  view.setUint16(4, message.type, true);
  view.setUint16(6, message.flags, true);
  view.setUint32(8, message.seq, true);
  view.setUint32(12, message.portId, true);
  bytes.set(message.payload, headerSize);
  return bytes;
}

/**
 * Parses what one `recv` gave: one or more messages. Payloads are views of `bytes`.
 * Throws `NETLINK_FAILED` when a length is below a header's or beyond the end.
 */
export function parseMessages(bytes: Uint8Array): NetlinkMessage[] {
  const messages: NetlinkMessage[] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const { length } = bytes;
  for (let offset = 0; offset < length; ) {
    if (offset + headerSize > length) throw malformed(`a message has ${length} bytes, too few`);
    const size = view.getUint32(offset, true);
    if (size < headerSize || offset + size > length)
      throw malformed(`a message of ${size} bytes, where ${length - offset} are left`);
    messages.push({
      type: view.getUint16(offset + 4, true),
      flags: view.getUint16(offset + 6, true),
      seq: view.getUint32(offset + 8, true),
      portId: view.getUint32(offset + 12, true),
      payload: bytes.subarray(offset + headerSize, offset + size),
    });
    offset += (size + 3) & ~3;
  }
  return messages;
}
