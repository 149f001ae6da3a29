import { cross } from "../core/crossing.ts";
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

/** The flows that the kernel tracks in the network namespace it was opened in. */
export class Conntrack implements Disposable {
  #socket: NetlinkSocket | undefined;
  #seq = 0;

  /**
   * Those that an address began, or answers. None where the kernel does not tell (CONFIG_NF_CT_NETLINK).
   * Throws `NETLINK_FAILED`, `SYSCALL_FAILED`.
   */
  flows(side: Side, address: Ip): Flow[] {
    const what = "Cannot list flows";
    const found: Flow[] = [];
    let ack: Ack;
    try {
      ack = cross("netlink", "list flows", () =>
        this.#ask(CT_GET, NLM_F_DUMP, flowsFrom(side, address), (payload) => {
          const flow = parseFlow(payload);
          if (flow?.[side].source === address) found.push(flow);
        }),
      );
    } catch (error) {
      if (isPodnetError(error) && unknownHere.has(String(error.details["errno"]))) return [];
      throw error;
    }
    if (ack.errno === 0) return found;
    if (unknownHere.has(errnoName(ack.errno))) return [];
    throw ackError(what, ack);
  }

  /** Forgets flows: what comes of them is judged as if it began. Those that have ended are passed over. Throws as `flows`. */
  forget(flows: readonly Flow[]): void {
    if (flows.length === 0) return;
    cross("netlink", "forget flows", () => {
      for (const flow of flows) {
        const ack = this.#ask(CT_DELETE, NLM_F_ACK, nameFlow(flow), () => {});
        if (ack.errno !== 0 && errnoName(ack.errno) !== "ENOENT")
          throw ackError("Cannot forget a flow", ack);
      }
    });
  }

  close(): void {
    this.#socket?.close();
    this.#socket = undefined;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Sends a request and takes what is answered, on this thread: nfnetlink does the work inside `send` and `recv`. */
  #ask(type: number, flags: number, payload: Uint8Array, take: (payload: Uint8Array) => void): Ack {
    const socket = (this.#socket ??= new NetlinkSocket({ family: "netfilter" }));
    const seq = (this.#seq = this.#seq === 0xffffffff ? 1 : this.#seq + 1);
    socket.send(encodeMessage({ type, flags: flags | NLM_F_REQUEST, seq, portId: 0, payload }));
    for (;;) {
      const part = socket.receive();
      if (typeof part === "string")
        throw new PodnetError("NETLINK_FAILED", `Cannot ask for flows: the answer is ${part}`, {
          details: { errno: part === "lost" ? "ENOBUFS" : "ENODATA" },
        });
      for (const message of parseMessages(part)) {
        // An answer to one that failed half way is no longer wanted.
        if (message.seq !== seq) continue;
        if (message.type === NLMSG_DONE || message.type === NLMSG_ERROR) return parseAck(message);
        if (message.type === CT_NEW) take(message.payload);
      }
    }
  }
}
