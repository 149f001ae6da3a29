import type { Attributes } from "./attributes.ts";
import { RTM_DELTFILTER, RTM_GETTFILTER, RTM_NEWTFILTER } from "./constants.ts";
import { NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, type Request } from "./message.ts";
import { optional } from "./optional.ts";
import { Reader } from "./reader.ts";
import { ingressHandle, readTcmsg, TCA_KIND, TCA_OPTIONS, tcmsg } from "./traffic-control.ts";
import { Writer } from "./writer.ts";

/**
 * Sends all that comes in by one link out by another: a filter that everything matches, with the
 * action `mirred`. The filter is u32, which is older than matchall and there where that is not
 * (Linux 6.18 here has no cls_matchall). Numbers: include/uapi/linux/pkt_cls.h, tc_act/tc_mirred.h
 * (Linux 6.1).
 */
const TCA_U32_SEL = 5;
const TCA_U32_ACT = 7;
const TC_U32_TERMINAL = 1;
const TCA_ACT_KIND = 1;
const TCA_ACT_OPTIONS = 2;
const TCA_MIRRED_PARMS = 2;
const TC_ACT_STOLEN = 4;
const TCA_EGRESS_REDIR = 1;
const ETH_P_ALL = 0x0003;

/** Priority of podnet's filter, the highest. */
export const redirectPriority = 1;
/** Priority above, protocol in network order below. */
const info = (redirectPriority << 16) | (ETH_P_ALL << 8);

/** The only action of a filter of ours, among up to 32. */
const firstAction = 1;

/** A filter on what comes in by a link. */
export interface IngressFilter {
  /** Index of the link. */
  readonly index: number;
  /** `u32`, `matchall`, … */
  readonly kind: string;
  /** Lower ones are asked first. */
  readonly priority: number;
  /** Everything matches, and leaves by the link of this index. */
  readonly redirectsTo?: number;
}

/**
 * Sends all that comes in by `from` out by `to`; `from` has to have an ingress queue. `EEXIST` when
 * it has a filter.
 */
export function addRedirect(from: number, to: number): Request {
  // struct tc_mirred: u32 index, capab; s32 action, refcnt, bindcnt, eaction; u32 ifindex.
  const mirred = new Writer();
  mirred.u32(0).u32(0).i32(TC_ACT_STOLEN).i32(0).i32(0).i32(TCA_EGRESS_REDIR).u32(to);
  // struct tc_u32_sel: u8 flags, offshift, nkeys; u16 offmask, off; s16 offoff, hoff; u32 hmask;
  // then the one key: u32 mask, value; s32 off, offmask. A mask of nothing is met by everything.
  const selector = new Writer().u8(TC_U32_TERMINAL).u8(0).u8(1).u8(0);
  selector.u16(0).u16(0).u16(0).u16(0).u32(0).u32(0).u32(0).i32(0).i32(0);
  const writer = tcmsg(from, 0, ingressHandle, info)
    .attributeText(TCA_KIND, "u32")
    .nested(TCA_OPTIONS, (options) => {
      options.nested(TCA_U32_ACT, (actions) =>
        actions.nested(firstAction, (action) => {
          action.attributeText(TCA_ACT_KIND, "mirred");
          action.nested(TCA_ACT_OPTIONS, (own) => own.attribute(TCA_MIRRED_PARMS, mirred.finish()));
        }),
      );
      options.attribute(TCA_U32_SEL, selector.finish());
    });
  return {
    type: RTM_NEWTFILTER,
    flags: NLM_F_CREATE | NLM_F_EXCL,
    payload: writer.finish(),
    what: `Cannot redirect what comes in by link ${from}`,
  };
}

/**
 * Deletes the ingress filters of a priority from a link. `ENOENT` or `EINVAL` when it has no
 * ingress queue.
 */
export const deleteFilters = (index: number, priority: number): Request => ({
  type: RTM_DELTFILTER,
  flags: 0,
  payload: tcmsg(index, 0, ingressHandle, priority << 16).finish(),
  what: `Cannot delete the filters of link ${index}`,
});

/**
 * Asks for the ingress filters of a link; the list is empty for a link without an ingress queue.
 */
export const getFilters = (index: number): Request => ({
  type: RTM_GETTFILTER,
  flags: NLM_F_DUMP,
  payload: tcmsg(index, 0, ingressHandle).finish(),
  what: `Cannot list the filters of link ${index}`,
});

/**
 * Parses the payload of RTM_NEWTFILTER; undefined for entries that are not filters themselves
 * (u32's tables come in the same list). Throws `NETLINK_FAILED`.
 */
export function parseFilter(payload: Uint8Array): IngressFilter | undefined {
  const { header, attributes } = readTcmsg(payload, "a filter");
  const kind = attributes.text(TCA_KIND) ?? "";
  const found = { index: header.index, kind, priority: header.info >>> 16 };
  // (What other kinds say by these numbers is something else.)
  if (kind !== "u32") return found;
  const options = attributes.nested(TCA_OPTIONS);
  const selector = options?.get(TCA_U32_SEL);
  if (options === undefined || selector === undefined) return undefined;
  return {
    ...found,
    ...optional("redirectsTo", matchesAll(selector) ? redirection(options) : undefined),
  };
}

/** One key, whose mask is nothing, and no way on to other tables. */
function matchesAll(selector: Uint8Array): boolean {
  const reader = new Reader(selector, "a filter's selector");
  return reader.u8(0) === TC_U32_TERMINAL && reader.u8(2) === 1 && reader.u32(16) === 0;
}

function redirection(options: Attributes): number | undefined {
  const action = options.nested(TCA_U32_ACT)?.nested(firstAction);
  if (action?.text(TCA_ACT_KIND) !== "mirred") return undefined;
  const parms = action.nested(TCA_ACT_OPTIONS)?.get(TCA_MIRRED_PARMS);
  if (parms === undefined) return undefined;
  const reader = new Reader(parms, "a redirection");
  const redirects = reader.i32(8) === TC_ACT_STOLEN && reader.i32(20) === TCA_EGRESS_REDIR;
  return redirects ? reader.u32(24) : undefined;
}
