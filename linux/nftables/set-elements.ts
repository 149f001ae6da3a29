import { Writer } from "../rtnetlink/writer.ts";
import {
  encodeMessage,
  NLM_F_ACK,
  NLM_F_CREATE,
  NLM_F_EXCL,
  NLM_F_REQUEST,
  NLMSG_ERROR,
  parseMessages,
} from "../rtnetlink/message.ts";
import { type Ack, parseAck } from "../rtnetlink/ack.ts";
import { encodeData, successor } from "./datum.ts";

// include/uapi/linux/netfilter/nfnetlink.h (Linux 6.1)
const NFNL_SUBSYS_NFTABLES = 10;
const NFNL_MSG_BATCH_BEGIN = 16;
const NFNL_MSG_BATCH_END = 17;
// include/uapi/linux/netfilter/nf_tables.h (Linux 6.1)
const NFT_MSG_NEWSETELEM = (NFNL_SUBSYS_NFTABLES << 8) | 12;
const NFT_MSG_DELSETELEM = (NFNL_SUBSYS_NFTABLES << 8) | 14;
const NFTA_SET_ELEM_LIST_TABLE = 1;
const NFTA_SET_ELEM_LIST_SET = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS = 3;
const NFTA_LIST_ELEM = 1;
const NFTA_SET_ELEM_KEY = 1;
const NFTA_SET_ELEM_DATA = 2;
const NFTA_SET_ELEM_FLAGS = 3;
const NFTA_SET_ELEM_USERDATA = 6;
const NFTA_SET_ELEM_KEY_END = 10;
const NFT_SET_ELEM_INTERVAL_END = 1;
const NFTA_DATA_VALUE = 1;
const NFTA_DATA_VERDICT = 2;
const NFTA_VERDICT_CODE = 1;
const NFTA_VERDICT_CHAIN = 2;
const NFT_JUMP = -3;
// include/uapi/linux/netfilter.h (Linux 6.1): NFPROTO_*
const families: Readonly<Record<string, number>> = { inet: 1, ip: 2, bridge: 7, ip6: 10 };
/**
 * include/libnftnl/udata.h (libnftnl 1.2.4): what nft keeps of a comment, as a type, a length and a
 * text with its NUL.
 */
const NFTNL_UDATA_SET_ELEM_COMMENT = 0;
const mostComment = 127;

/** A set or map, as it was declared. */
export interface SetDeclaration {
  readonly name: string;
  /** The types of a key, as in `encodeData`. */
  readonly types: readonly string[];
  /** The types of a value in a map; `verdict` for one that leads to a chain. */
  readonly value?: readonly string[];
  readonly interval?: boolean;
}

/** What becomes of one element. */
export interface ElementChange {
  /** `create` is refused (EEXIST) if the element exists; `delete` unless it does (ENOENT). */
  readonly verb: "add" | "create" | "delete";
  readonly set: SetDeclaration;
  /** In words of nft's language, without a comment. */
  readonly key: string;
  readonly value?: string;
  readonly comment?: string;
}

/** A transaction that was encoded. */
export interface ElementBatch {
  readonly bytes: Uint8Array;
  /** The number of its first message, the change after which is its first, and so on. */
  readonly begin: number;
  readonly changes: readonly ElementChange[];
}

/** A change that the kernel has refused, or the whole of them. */
export interface Refused {
  readonly ack: Ack;
  /** Absent: what is wrong is not about one change. */
  readonly change?: ElementChange;
}

/**
 * Encodes changes of a table, `inet podnet`, as one transaction: a message for each, between two
 * that say where it begins and ends (nfnetlink_rcv_batch, net/netfilter/nfnetlink.c). The kernel
 * answers the last change, and each that it refuses; it then makes none. The messages have the
 * numbers from `begin` on. Pure. Throws `RangeError`.
 */
export function encodeElements(
  table: string,
  changes: readonly ElementChange[],
  begin: number,
): ElementBatch {
  const [family = "", name = ""] = table.split(" ");
  const number = families[family];
  if (number === undefined) throw new RangeError(`Tables of family "${family}" are not known`);
  const parts = [
    message(NFNL_MSG_BATCH_BEGIN, 0, begin, header(0, NFNL_SUBSYS_NFTABLES)),
    ...changes.map((change, i) => {
      const ack = i === changes.length - 1 ? NLM_F_ACK : 0;
      const payload = header(number, 0);
      payload
        .attributeText(NFTA_SET_ELEM_LIST_TABLE, name)
        .attributeText(NFTA_SET_ELEM_LIST_SET, change.set.name)
        .nested(NFTA_SET_ELEM_LIST_ELEMENTS, (list) => writeElement(list, change));
      const { type, flags } = verbs[change.verb];
      return message(type, flags | ack, begin + 1 + i, payload);
    }),
    message(NFNL_MSG_BATCH_END, 0, begin + 1 + changes.length, header(0, NFNL_SUBSYS_NFTABLES)),
  ];
  return { bytes: Buffer.concat(parts), begin, changes };
}

/**
 * Reads what the kernel has answered to a transaction, datagram by datagram: what it has refused;
 * nothing when the transaction is made. Undefined when it has not answered. Pure. Throws
 * `NETLINK_FAILED`.
 */
export function readAnswer(
  { begin, changes }: Omit<ElementBatch, "bytes">,
  datagrams: readonly Uint8Array[],
): readonly Refused[] | undefined {
  const refused: Refused[] = [];
  let answered = false;
  for (const datagram of datagrams)
    for (const each of parseMessages(datagram)) {
      const place = each.seq - begin - 1;
      // Skips answers to an earlier transaction, whose answers were lost.
      if (each.type !== NLMSG_ERROR || place < -1 || place > changes.length) continue;
      const ack = parseAck(each);
      const change = changes[place];
      if (ack.errno !== 0) refused.push({ ack, ...(change === undefined ? {} : { change }) });
      if (place === changes.length - 1) answered = true;
    }
  return answered || refused.length > 0 ? refused : undefined;
}

const verbs = {
  add: { type: NFT_MSG_NEWSETELEM, flags: NLM_F_CREATE },
  create: { type: NFT_MSG_NEWSETELEM, flags: NLM_F_CREATE | NLM_F_EXCL },
  delete: { type: NFT_MSG_DELSETELEM, flags: 0 },
} as const;

const message = (type: number, flags: number, seq: number, payload: Writer): Uint8Array =>
  encodeMessage({
    type,
    flags: flags | NLM_F_REQUEST,
    seq,
    portId: 0,
    payload: payload.finish(),
  });

/** struct nfgenmsg { u8 family; u8 version; be16 res_id; } */
const header = (family: number, resource: number): Writer =>
  new Writer().raw(Uint8Array.of(family, 0, resource >> 8, resource & 0xff));

/**
 * A range in a concatenation has both of its ends in one element; the kernel asks for them in all
 * elements of such a set (nft_pipapo). In a set of one type, a range is an element where it begins
 * and one behind its end (nft_set_rbtree), which the last range of all lacks.
 */
function writeElement(list: Writer, { verb, set, key, value, comment }: ElementChange): void {
  const { types, interval = false } = set;
  const { first, last } = encodeData(types, key);
  list.nested(NFTA_LIST_ELEM, (element) => {
    element.nested(NFTA_SET_ELEM_KEY, (data) => data.attribute(NFTA_DATA_VALUE, first));
    if (interval && types.length > 1)
      element.nested(NFTA_SET_ELEM_KEY_END, (data) => data.attribute(NFTA_DATA_VALUE, last));
    if (verb === "delete") return;
    if (value !== undefined) writeValue(element, set, value);
    if (comment !== undefined) element.attribute(NFTA_SET_ELEM_USERDATA, commentBytes(comment));
  });
  const behind = interval && types.length === 1 ? successor(last) : undefined;
  if (behind === undefined) return;
  list.nested(NFTA_LIST_ELEM, (element) =>
    element
      .nested(NFTA_SET_ELEM_KEY, (data) => data.attribute(NFTA_DATA_VALUE, behind))
      .attributeU32be(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END),
  );
}

function writeValue(element: Writer, { name, value: types }: SetDeclaration, value: string): void {
  if (types === undefined) throw new RangeError(`Elements of set ${name} have no value`);
  const [, chain] = /^jump (\w+)$/.exec(value) ?? [];
  element.nested(NFTA_SET_ELEM_DATA, (data) => {
    if (types[0] !== "verdict") data.attribute(NFTA_DATA_VALUE, encodeData(types, value).first);
    else if (chain === undefined) throw new RangeError(`"${value}" leads to no chain`);
    else
      data.nested(NFTA_DATA_VERDICT, (verdict) =>
        verdict
          .attributeU32be(NFTA_VERDICT_CODE, NFT_JUMP)
          .attributeText(NFTA_VERDICT_CHAIN, chain),
      );
  });
}

function commentBytes(comment: string): Uint8Array {
  const text = Buffer.from(comment);
  if (text.length > mostComment) throw new RangeError(`A comment of ${text.length} bytes`);
  return Uint8Array.of(NFTNL_UDATA_SET_ELEM_COMMENT, text.length + 1, ...text, 0);
}
