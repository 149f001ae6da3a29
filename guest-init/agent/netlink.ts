import type { Mac } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { type Ack, ackError, parseAck } from "../../linux/rtnetlink/ack.ts";
import { type LinkAddress, getAddresses, parseAddress } from "../../linux/rtnetlink/address.ts";
import { parseAttributes } from "../../linux/rtnetlink/attributes.ts";
import { IFLA_ADDRESS } from "../../linux/rtnetlink/link-attributes.ts";
import {
  type LinkRef,
  changeLink,
  getLink,
  getLinks,
  type LinkChange,
} from "../../linux/rtnetlink/link-requests.ts";
import { type Link, parseLink } from "../../linux/rtnetlink/link.ts";
import {
  NLMSG_DONE,
  NLMSG_ERROR,
  NLM_F_DUMP_INTR,
  type NetlinkMessage,
  type Request,
  encodeRequest,
  isDump,
  parseMessages,
} from "../../linux/rtnetlink/message.ts";
import { getRoutes } from "../../linux/rtnetlink/route-requests.ts";
import { type Route, parseRoute } from "../../linux/rtnetlink/route.ts";
import { netlinkAddress, netlinkSocket } from "./devices.ts";
import { pollEvent, sys } from "./sys.ts";

const netlinkRoute = 0;
const solNetlink = 270;
/** NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK: include/uapi/linux/netlink.h (Linux 6.1). */
const options = [10, 11, 12] as const;
/** Dumps come in datagrams of at most 32 KiB (netlink_dump, Linux 6.1). */
const bufferSize = 65536;
/** RT_TABLE_MAIN. */
const mainTable = 254;
/** Size of struct ifinfomsg, before a link's attributes. */
const linkHeader = 16;
/** How often a list is asked for again because it changed while it was read. */
const dumpAttempts = 5;
/** The kernel answers inside send; this bounds what should not happen, milliseconds. */
const answerMs = 2000;

/** What a request brought: the kernel's objects, and its verdict. */
interface Answer {
  readonly objects: NetlinkMessage[];
  readonly ack: Ack;
  readonly interrupted: boolean;
}

/**
 * Requests to rtnetlink, answered before the call returns: the kernel does the work inside send(2).
 * A refusal throws `NETLINK_FAILED` with the error's name and the kernel's words.
 */
export class Netlink {
  readonly #fd: number;
  readonly #buffer = new Uint8Array(bufferSize);
  #seq = 0;

  constructor() {
    this.#fd = netlinkSocket(netlinkRoute, 0);
    for (const option of options) sys.setOption(this.#fd, solNetlink, option, 1);
  }

  /** Does one request; its answer's objects. */
  request(request: Request): NetlinkMessage[] {
    for (let attempt = 1; ; attempt++) {
      const { objects, ack, interrupted } = this.#ask(request);
      if (ack.errno !== 0) throw ackError(request.what, ack);
      if (!interrupted || attempt === dumpAttempts) return objects;
    }
  }

  /** Does one request; these error names count as success. Answers whether it was one of them. */
  tolerate(request: Request, ...fine: readonly string[]): boolean {
    try {
      this.request(request);
      return false;
    } catch (thrown) {
      if (thrown instanceof PodnetError && fine.includes(String(thrown.details["errno"])))
        return true;
      throw thrown;
    }
  }

  links(): Link[] {
    return this.request(getLinks()).map(({ payload }) => parseLink(payload));
  }

  /** Undefined when there is none. */
  link(ref: LinkRef): Link | undefined {
    try {
      const [message] = this.request(getLink(ref));
      return message && parseLink(message.payload);
    } catch (thrown) {
      if (thrown instanceof PodnetError && thrown.details["errno"] === "ENODEV") return undefined;
      throw thrown;
    }
  }

  /** The link with this MAC. Only the one that matches is read whole: it is looked for at every change of a link. */
  linkWithMac(mac: Mac): Link | undefined {
    const found = this.request(getLinks()).find(
      ({ payload }) => parseAttributes(payload.subarray(linkHeader)).mac(IFLA_ADDRESS) === mac,
    );
    return found && parseLink(found.payload);
  }

  change(ref: LinkRef, change: LinkChange): void {
    this.request(changeLink(ref, change));
  }

  addresses(index?: number): LinkAddress[] {
    return this.request(getAddresses(index === undefined ? {} : { index }))
      .map(({ payload }) => parseAddress(payload))
      .filter((address) => index === undefined || address.index === index);
  }

  /** Routes of table main. */
  routes(): Route[] {
    return this.request(getRoutes({ table: mainTable }))
      .map(({ payload }) => parseRoute(payload))
      .filter((route) => route !== undefined && route.table === mainTable) as Route[];
  }

  #ask(request: Request): Answer {
    const seq = ++this.#seq;
    sys.send(this.#fd, encodeRequest(request, seq), netlinkAddress(0));
    const objects: NetlinkMessage[] = [];
    let interrupted = false;
    for (;;) {
      for (const message of this.#receive(request)) {
        if (message.seq !== seq) continue;
        interrupted ||= (message.flags & NLM_F_DUMP_INTR) !== 0;
        if (message.type !== NLMSG_ERROR && message.type !== NLMSG_DONE) objects.push(message);
        else if (message.type === NLMSG_DONE || !isDump(request) || parseAck(message).errno !== 0)
          return { objects, ack: parseAck(message), interrupted };
      }
    }
  }

  #receive(request: Request): NetlinkMessage[] {
    const set = Int32Array.of(this.#fd, pollEvent.in);
    const count =
      sys.receive(this.#fd, this.#buffer) ??
      (sys.poll(set, answerMs, 1) > 0 ? sys.receive(this.#fd, this.#buffer) : undefined);
    if (count === undefined || count > bufferSize)
      throw new PodnetError("NETLINK_FAILED", `${request.what}: the kernel gave no usable answer`);
    // The buffer is used again: what is kept of it must be a copy.
    return parseMessages(this.#buffer.slice(0, count));
  }
}
