import { perform } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { type BoundSocket, boundSockets } from "./listeners.ts";
import { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { ackError, parseAck } from "../rtnetlink/ack.ts";
import {
  encodeMessage,
  NLM_F_DUMP,
  NLM_F_REQUEST,
  NLMSG_DONE,
  NLMSG_ERROR,
  parseMessages,
} from "../rtnetlink/message.ts";
import { listenersAt, parseListener, SOCK_DIAG_BY_FAMILY } from "../sockdiag/listener.ts";

/** Errors of a kernel that was built without inet_diag, or cannot load it. */
const unknownHere = new Set(["ENOENT", "EINVAL", "EOPNOTSUPP", "EPROTONOSUPPORT"]);

/**
 * The listening TCP sockets of the calling thread's network namespace, or of one port.
 * /proc/net/tcp makes the kernel walk all slots of its connection table (5 ms each, Linux 6.18);
 * this costs only as much as there are sockets to report. Throws `NETLINK_FAILED`,
 * `SYSCALL_FAILED`.
 */
export function tcpListeners(port?: number): BoundSocket[] {
  try {
    return perform("netlink", "list listeners", () => ask(port));
  } catch (error) {
    if (!isPodnetError(error) || !unknownHere.has(String(error.details["errno"]))) throw error;
    return boundSockets(["tcp"]).filter(
      (each) => each.listens && (port ?? each.port) === each.port,
    );
  }
}

function ask(port: number | undefined): BoundSocket[] {
  const socket = new NetlinkSocket({ family: "sockets" });
  using _socket = { [Symbol.dispose]: () => socket.close() };
  return ([4, 6] as const).flatMap((family, seq) => {
    socket.send(
      encodeMessage({
        type: SOCK_DIAG_BY_FAMILY,
        flags: NLM_F_REQUEST | NLM_F_DUMP,
        seq,
        portId: 0,
        payload: listenersAt(family, port),
      }),
    );
    return answers(socket);
  });
}

/** The answers to a request, up to the last. */
function answers(socket: NetlinkSocket): BoundSocket[] {
  const found: BoundSocket[] = [];
  for (;;) {
    const part = socket.receive();
    if (typeof part === "string")
      throw new PodnetError("NETLINK_FAILED", `Cannot ask who listens: the answer is ${part}`, {
        details: { errno: part === "lost" ? "ENOBUFS" : "ENODATA" },
      });
    for (const message of parseMessages(part)) {
      if (message.type === NLMSG_DONE || message.type === NLMSG_ERROR) {
        const ack = parseAck(message);
        if (ack.errno !== 0) throw ackError("Cannot ask who listens", ack);
        return found;
      }
      if (message.type !== SOCK_DIAG_BY_FAMILY) continue;
      const { inode, ...listener } = parseListener(message.payload);
      found.push({ protocol: "tcp", ...listener, listens: true, inode: String(inode) });
    }
  }
}
