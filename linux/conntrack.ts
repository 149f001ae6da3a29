import { cross, crossAsync } from "../core/crossing.ts";
import { isPodnetError, PodnetError } from "../core/errors.ts";
import type { Ip } from "../core/address.ts";
import {
  CT_DELETE,
  CT_GET,
  CT_NEW,
  type Flow,
  flowsFrom,
  nameFlow,
  parseFlow,
  type Side,
} from "./conntrack/flow.ts";
import { NetlinkSocket } from "./netlink-socket.ts";
import { type Ack, ackError, parseAck } from "./rtnetlink/ack.ts";
import { errnoName } from "./rtnetlink/errno.ts";
import {
  encodeMessage,
  NLM_F_ACK,
  NLM_F_DUMP,
  NLM_F_REQUEST,
  NLMSG_DONE,
  NLMSG_ERROR,
  parseMessages,
} from "./rtnetlink/message.ts";

/** What a kernel answers that was built without ctnetlink, or without connection tracking. */
const unknownHere = new Set(["EINVAL", "EOPNOTSUPP", "EPROTONOSUPPORT"]);

function openSocket(): NetlinkSocket | undefined {
  try {
    return new NetlinkSocket({ family: "netfilter" });
  } catch (error) {
    if (isUnknownHere(error)) return undefined;
    throw error;
  }
}

/** The flows that the kernel tracks in the network namespace it was opened in. */
export class Conntrack implements AsyncDisposable {
  readonly #socket = openSocket();
  #seq = 0;
  #looking: Promise<unknown> = Promise.resolve();

  /**
   * Those that an address began, or answers. None where the kernel does not tell (CONFIG_NF_CT_NETLINK). The kernel goes
   * through its whole table, all namespaces', for milliseconds: on another thread, one look at a time.
   * Throws `NETLINK_FAILED`, `SYSCALL_FAILED`.
   */
  flows(side: Side, address: Ip): Promise<Flow[]> {
    const turn = this.#looking.then(() => this.#look(side, address));
    this.#looking = turn.catch(() => {});
    return turn;
  }

  async #look(side: Side, address: Ip): Promise<Flow[]> {
    const found: Flow[] = [];
    const socket = this.#socket;
    if (socket === undefined) return found;
    const ack = await crossAsync("netlink", "list flows", async () => {
      await socket.sendAsync(this.#request(CT_GET, NLM_F_DUMP, flowsFrom(side, address)));
      return this.#collect(socket, (payload) => {
        const flow = parseFlow(payload);
        if (flow?.[side].source === address) found.push(flow);
      });
    });
    if (ack.errno === 0) return found;
    if (unknownHere.has(errnoName(ack.errno))) return [];
    throw ackError("Cannot list flows", ack);
  }

  /** Forgets flows: what comes of them is judged as if it began. Those that have ended are passed over. Throws as `flows`. */
  forget(flows: readonly Flow[]): Promise<void> {
    const turn = this.#looking.then(() => this.#forget(flows));
    this.#looking = turn.catch(() => {});
    return turn;
  }

  #forget(flows: readonly Flow[]): void {
    const socket = this.#socket;
    if (flows.length === 0 || socket === undefined) return;
    cross("netlink", "forget flows", () => {
      for (const flow of flows) {
        socket.send(this.#request(CT_DELETE, NLM_F_ACK, nameFlow(flow)));
        const ack = this.#collect(socket, () => {});
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

  /** Takes what is answered to the last request. */
  #collect(socket: NetlinkSocket, take: (payload: Uint8Array) => void): Ack {
    for (;;) {
      const part = socket.receive();
      if (typeof part === "string")
        throw new PodnetError("NETLINK_FAILED", `Cannot ask for flows: the answer is ${part}`, {
          details: { errno: part === "lost" ? "ENOBUFS" : "ENODATA" },
        });
      for (const message of parseMessages(part)) {
        // An answer to one that failed half way is no longer wanted.
        if (message.seq !== this.#seq) continue;
        if (message.type === NLMSG_DONE || message.type === NLMSG_ERROR) return parseAck(message);
        if (message.type === CT_NEW) take(message.payload);
      }
    }
  }
}

const isUnknownHere = (error: unknown): boolean =>
  isPodnetError(error) && unknownHere.has(String(error.details["errno"]));
