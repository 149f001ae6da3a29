import { PodnetError } from "../../../core/errors.ts";
import { type Ack, ackError, parseAck } from "../../../linux/rtnetlink/ack.ts";
import { errnoName } from "../../../linux/rtnetlink/errno.ts";
import {
  type LinkAddress,
  getAddresses,
  parseAddress,
  scopeOfAddress,
} from "../../../linux/rtnetlink/address.ts";
import {
  type LinkRef,
  changeLink,
  getLink,
  getLinks,
  type LinkChange,
} from "../../../linux/rtnetlink/links/link-requests.ts";
import { type LinkState, parseLinkState } from "../../../linux/rtnetlink/links/link.ts";
import {
  NLMSG_DONE,
  NLMSG_ERROR,
  NLM_F_DUMP_INTR,
  type NetlinkMessage,
  type Request,
  encodeRequest,
  isDump,
  parseMessages,
} from "../../../linux/rtnetlink/message.ts";
import { RTM_NEWLINK } from "../../../linux/rtnetlink/constants.ts";
import { getRoutes } from "../../../linux/rtnetlink/route-requests.ts";
import { type Route, parseRoute } from "../../../linux/rtnetlink/route.ts";
import type { Scope } from "../../../linux/rtnetlink/scope.ts";
import type { Change } from "../../network/changes.ts";
import { joinBytes } from "../../protocol/bytes.ts";
import { netlinkSocket } from "../devices.ts";
import { pollEvent, sys } from "../sys.ts";

const netlinkRoute = 0;
const solNetlink = 270;
/**
 * NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK: include/uapi/linux/netlink.h (Linux
 * 6.1).
 */
const options = [10, 11, 12] as const;
/** Of a list, bytes (netlink_dump, Linux 6.1). */
const datagramMax = 32768;
const bufferSize = 2 * datagramMax;
/** RT_TABLE_MAIN. */
const mainTable = 254;
/** How often a list is asked for again because it changed while it was read. */
const dumpAttempts = 5;
/** The kernel answers inside send; this bounds what should not happen, milliseconds. */
const answerMs = 2000;
/** Requests sent together: their acks have room in the socket's buffer many times over. */
const batch = 64;

// Encoded once: each configuration asks for them.
const allLinks = getLinks();
const allAddresses = getAddresses();
const mainRoutes = getRoutes({ table: mainTable });

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
      const objects: NetlinkMessage[] = [];
      let interrupted = false;
      const ack = this.#ask([request], (message) => {
        interrupted ||= (message.flags & NLM_F_DUMP_INTR) !== 0;
        if (message.type !== NLMSG_DONE) objects.push(message);
      })[0];
      if (ack !== undefined && ack.errno !== 0) throw ackError(request.what, ack);
      if (!interrupted || attempt === dumpAttempts) return objects;
    }
  }

  /**
   * Does changes in their order with one call to the kernel, each whatever became of the others;
   * then throws the first refusal.
   */
  apply(changes: readonly Change[]): void {
    this.#refuse(changes, this.attempt(changes.map(({ request }) => request)));
  }

  /** Applies changes, and answers what these links are afterwards, in one call to the kernel. */
  applyTo(links: readonly number[], changes: readonly Change[]): LinkState[] {
    const after: LinkState[] = [];
    const asked = [...changes.map(({ request }) => request), ...links.map(getLink)];
    const acks = this.attempt(asked, ({ type, payload }) => {
      if (type === RTM_NEWLINK) after.push(parseLinkState(payload));
    });
    this.#refuse(changes, acks);
    return after;
  }

  #refuse(changes: readonly Change[], acks: readonly Ack[]): void {
    changes.forEach(({ request, fine = [] }, i) => {
      const ack = acks[i] as Ack;
      // An error is made only to be thrown: a thousand of them cost the engine as much as the
      // requests.
      if (ack.errno !== 0 && !fine.includes(errnoName(ack.errno)))
        throw ackError(request.what, ack);
    });
  }

  /**
   * Does requests in their order, many with one call to the kernel, each whatever became of the
   * others. Returns its acks.
   */
  attempt(requests: readonly Request[], object?: (message: NetlinkMessage) => void): Ack[] {
    const acks: Ack[] = [];
    for (let at = 0; at < requests.length; at += batch)
      acks.push(...this.#ask(requests.slice(at, at + batch), object));
    return acks;
  }

  /** Has steps of the host use this socket, too. */
  serveSteps(): void {
    sys.useNetlink(this.#fd);
  }

  /** Does one request; these error names count as success. Answers whether it was one of them. */
  tolerate(request: Request, ...fine: readonly string[]): boolean {
    try {
      this.request(request);
      return false;
    } catch (thrown) {
      if (isFine(thrown, fine)) return true;
      throw thrown;
    }
  }

  links(): LinkState[] {
    return this.request(allLinks).map(({ payload }) => parseLinkState(payload));
  }

  /** Undefined when there is none. */
  link(ref: LinkRef): LinkState | undefined {
    try {
      const [message] = this.request(getLink(ref));
      return message && parseLinkState(message.payload);
    } catch (thrown) {
      if (isFine(thrown, ["ENODEV"])) return undefined;
      throw thrown;
    }
  }

  change(ref: LinkRef, change: LinkChange): void {
    this.request(changeLink(ref, change));
  }

  addresses(index?: number, wanted: (scope: Scope) => boolean = () => true): LinkAddress[] {
    return this.request(index === undefined ? allAddresses : getAddresses({ index }))
      .filter(({ payload }) => wanted(scopeOfAddress(payload)))
      .map(({ payload }) => parseAddress(payload))
      .filter((address) => address !== undefined)
      .filter((address) => index === undefined || address.index === index);
  }

  /** Routes of table main. */
  routes(): Route[] {
    return this.request(mainRoutes)
      .map(({ payload }) => parseRoute(payload))
      .filter((route) => route !== undefined && route.table === mainTable) as Route[];
  }

  /**
   * The verdicts on requests sent together; `object` is handed what else they bring, the end of a
   * list too.
   */
  #ask(requests: readonly Request[], object: (message: NetlinkMessage) => void = () => {}): Ack[] {
    const first = this.#seq + 1;
    this.#seq += requests.length;
    const encoded = requests.map((request, i) => encodeRequest(request, first + i));
    const sent = encoded.length === 1 ? (encoded[0] as Uint8Array) : joinBytes(encoded);
    const acks: Ack[] = [];
    let missing = requests.length;
    for (let bytes = this.#exchange(sent); ; bytes = this.#receive()) {
      for (const message of parseMessages(bytes)) {
        const at = message.seq - first;
        const request = requests[at];
        if (request === undefined) continue;
        if (message.type !== NLMSG_ERROR) object(message);
        if (message.type !== NLMSG_ERROR && message.type !== NLMSG_DONE) continue;
        const ack = parseAck(message);
        // The ack of a list is its end.
        if (message.type === NLMSG_ERROR && ack.errno === 0 && isDump(request)) continue;
        acks[at] = ack;
        missing--;
      }
      if (missing <= 0) return acks;
    }
  }

  #exchange(request: Uint8Array): Uint8Array {
    const count = sys.exchange(this.#fd, request, this.#buffer);
    return count === undefined ? this.#receive() : this.#copy(count);
  }

  #receive(): Uint8Array {
    const count =
      sys.receiveAll(this.#fd, this.#buffer) ??
      (sys.poll(Int32Array.of(this.#fd, pollEvent.in), answerMs, 1, new Int32Array(2)) > 0
        ? sys.receiveAll(this.#fd, this.#buffer)
        : undefined);
    if (count === undefined)
      throw new PodnetError("NETLINK_FAILED", "The kernel gave netlink no answer");
    return this.#copy(count);
  }

  /** The buffer is used again: what is kept of it must be a copy. */
  #copy(count: number): Uint8Array {
    return this.#buffer.slice(0, count);
  }
}

const isFine = (thrown: unknown, fine: readonly string[] = []): boolean =>
  thrown instanceof PodnetError && fine.includes(String(thrown.details["errno"]));
