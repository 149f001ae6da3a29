import { setImmediate as nextTurn } from "node:timers/promises";
import { perform, performAsync } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { familyOf, type Ip } from "../../core/address.ts";
import {
  addressBytes,
  askCount,
  CT_DELETE,
  CT_GET,
  CT_GET_STATS,
  CT_NEW,
  type Flow,
  flowsFrom,
  flowsOf,
  nameFlow,
  parseCount,
  parseFlow,
  type Side,
  sourceBytes,
} from "./flow.ts";
import { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { type Ack, ackError, parseAck } from "../rtnetlink/ack.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import {
  encodeMessage,
  NLM_F_ACK,
  NLM_F_DUMP,
  NLM_F_REQUEST,
  NLMSG_DONE,
  NLMSG_ERROR,
  parseMessages,
} from "../rtnetlink/message.ts";

/** Errors of a kernel that was built without ctnetlink, or without connection tracking. */
const unknownHere = new Set(["EINVAL", "EOPNOTSUPP", "EPROTONOSUPPORT"]);

function openSocket(): NetlinkSocket | undefined {
  try {
    return new NetlinkSocket({ family: "netfilter" });
  } catch (error) {
    if (isUnknownHere(error)) return undefined;
    throw error;
  }
}

/**
 * Flows read here in the time in which the kernel goes through its table once, whatever is in it:
 * some 2 ms.
 */
const readPerWalk = 256;

/** The flows that the kernel tracks in the network namespace it was opened in. */
export class Conntrack implements AsyncDisposable {
  readonly #socket = openSocket();
  #seq = 0;
  #looking: Promise<unknown> = Promise.resolve();

  /**
   * Connections that one of these addresses began, or answers. Empty where the kernel does not list
   * them (CONFIG_NF_CT_NETLINK). Any listing makes the kernel walk its whole table, of all
   * namespaces, for milliseconds: so it runs on another thread, one at a time, and not when the
   * kernel counts no connections. Throws `NETLINK_FAILED`, `SYSCALL_FAILED`.
   */
  flows(side: Side, addresses: readonly Ip[]): Promise<Flow[]> {
    const turn = this.#looking.then(() => this.#look(side, addresses));
    this.#looking = turn.catch(() => {});
    return turn;
  }

  async #look(side: Side, addresses: readonly Ip[]): Promise<Flow[]> {
    const found: Flow[] = [];
    const socket = this.#socket;
    if (socket === undefined || addresses.length === 0) return found;
    const count = this.#count(socket);
    if (count === 0) return found;
    const wanted = new Set(addresses);
    const bytes = new Set(addresses.map(addressBytes));
    for (const asked of questions(side, addresses, count)) {
      const ack = await performAsync("netlink", "list flows", async () => {
        await socket.sendAsync(this.#request(CT_GET, NLM_F_DUMP, asked));
        return this.#collectInTurns(socket, CT_NEW, (payload) => {
          const source = sourceBytes(asBuffer(payload), side);
          if (source !== undefined && !bytes.has(source)) return;
          const flow = parseFlow(payload);
          if (flow !== undefined && wanted.has(flow[side].source)) found.push(flow);
        });
      });
      if (ack.errno !== 0 && !unknownHere.has(errnoName(ack.errno)))
        throw ackError("Cannot list flows", ack);
    }
    return found;
  }

  /** How many flows there are; undefined where the kernel does not say. */
  #count(socket: NetlinkSocket): number | undefined {
    let count: number | undefined;
    perform("netlink", "count flows", () => {
      socket.send(this.#request(CT_GET_STATS, NLM_F_ACK, askCount()));
      const ack = this.#collect(socket, CT_GET_STATS, (payload) => {
        count = parseCount(payload);
      });
      if (ack.errno !== 0) count = undefined;
    });
    return count;
  }

  /**
   * Deletes flows, so that their next packets are judged as new connections. Flows that have ended
   * are skipped. Throws as `flows`.
   */
  forget(flows: readonly Flow[]): Promise<void> {
    const turn = this.#looking.then(() => this.#forget(flows));
    this.#looking = turn.catch(() => {});
    return turn;
  }

  async #forget(flows: readonly Flow[]): Promise<void> {
    const socket = this.#socket;
    if (flows.length === 0 || socket === undefined) return;
    const turn = new Turn();
    await performAsync("netlink", "forget flows", async () => {
      for (const flow of flows) {
        await turn.end();
        socket.send(this.#request(CT_DELETE, NLM_F_ACK, nameFlow(flow)));
        const ack = this.#collect(socket, CT_NEW, () => {});
        if (ack.errno !== 0 && errnoName(ack.errno) !== "ENOENT")
          throw ackError("Cannot forget a flow", ack);
      }
    });
  }

  /** After what is under way. */
  async close(): Promise<void> {
    await this.#looking;
    this.#socket?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #request(type: number, flags: number, payload: Uint8Array): Uint8Array {
    this.#seq = this.#seq === 0xffffffff ? 1 : this.#seq + 1;
    return encodeMessage({
      type,
      flags: flags | NLM_F_REQUEST,
      seq: this.#seq,
      portId: 0,
      payload,
    });
  }

  /** Takes what of a type is answered to the last request. */
  #collect(socket: NetlinkSocket, type: number, take: (payload: Uint8Array) => void): Ack {
    for (;;) {
      const ack = this.#takePart(socket, type, take);
      if (ack !== undefined) return ack;
    }
  }

  /** As above, for an answer without a bound: other tasks have their turns meanwhile. */
  async #collectInTurns(
    socket: NetlinkSocket,
    type: number,
    take: (payload: Uint8Array) => void,
  ): Promise<Ack> {
    const turn = new Turn();
    for (;;) {
      const ack = this.#takePart(socket, type, take);
      if (ack !== undefined) return ack;
      await turn.end();
    }
  }

  /**
   * Takes one datagram of an answer, some 100 flows; returns the end of the answer, if it is in
   * there.
   */
  #takePart(
    socket: NetlinkSocket,
    type: number,
    take: (payload: Uint8Array) => void,
  ): Ack | undefined {
    const part = socket.receive();
    if (typeof part === "string")
      throw new PodnetError("NETLINK_FAILED", `Cannot ask for flows: the answer is ${part}`, {
        details: { errno: part === "lost" ? "ENOBUFS" : "ENODATA" },
      });
    for (const message of parseMessages(part)) {
      // Skips answers to a request that failed half way.
      if (message.seq !== this.#seq) continue;
      if (message.type === NLMSG_DONE || message.type === NLMSG_ERROR) return parseAck(message);
      if (message.type === type) take(message.payload);
    }
    return undefined;
  }
}

/** Longest that flows are read or forgotten before others have their turn, milliseconds. */
const turnMs = 5;

/** A share of the thread. */
class Turn {
  #endsAtMs = performance.now() + turnMs;

  /** Lets others have their turn where this one has taken its share. */
  async end(): Promise<void> {
    if (performance.now() < this.#endsAtMs) return;
    await nextTurn();
    this.#endsAtMs = performance.now() + turnMs;
  }
}

const asBuffer = ({ buffer, byteOffset, byteLength }: Uint8Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

/**
 * The requests for the flows of addresses. Either one for each IPv4 address, which the kernel then
 * filters; or one for all flows, which are filtered here: always for IPv6, and for IPv4 when
 * reading all flows costs less than walking the table again.
 */
function questions(side: Side, addresses: readonly Ip[], count: number | undefined): Uint8Array[] {
  const four = addresses.filter((address) => familyOf(address) === 4);
  const together = count !== undefined && count <= readPerWalk * (four.length - 1);
  return [
    ...(together ? [flowsOf(4)] : four.map((address) => flowsFrom(side, address))),
    ...(four.length < addresses.length ? [flowsOf(6)] : []),
  ];
}

const isUnknownHere = (error: unknown): boolean =>
  isPodnetError(error) && unknownHere.has(String(error.details["errno"]));
