import { perform } from "../../core/effect.ts";
import { guarded } from "../../core/guard.ts";
import { type Poll, pollFd } from "../ffi/poll.ts";
import {
  bindGroup,
  gatherFor,
  LOG_CONFIG,
  LOG_PACKET,
  type LogRecord,
  parseLogRecord,
} from "./record.ts";
import { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { ackError, parseAck } from "../rtnetlink/ack.ts";
import {
  encodeMessage,
  NLM_F_ACK,
  NLM_F_REQUEST,
  NLMSG_ERROR,
  parseMessages,
} from "../rtnetlink/message.ts";

/** The kernel gathers records so long before it sends them, hundredths of a second. */
const gather = 5;
/** Bytes that the kernel queues: some 4,000 records. It drops what comes above. */
const receiveBuffer = 2 << 20;
/** Gives other work its turn: each has up to a hundred records. */
const datagramsPerTurn = 4;
/** After an error that is not expected, milliseconds. */
const restMs = 1000;

/**
 * Calls `listener` with what rules of the calling thread's network namespace log to a group
 * (NFLOG), some records at a time. What comes faster than it is read is lost, and `onLost` is
 * called. Does not keep the process alive. Throws `NETLINK_FAILED` where another program has the
 * group (EPERM), or the kernel has no such log (EINVAL), and `SYSCALL_FAILED`.
 */
export function openNetfilterLog(
  group: number,
  listener: (records: readonly LogRecord[]) => void,
  onLost: () => void,
): Disposable {
  using opened = new DisposableStack();
  const socket = opened.adopt(new NetlinkSocket({ family: "netfilter", receiveBuffer }), (each) =>
    each.close(),
  );
  perform("netlink", "bind log group", () => {
    ask(socket, 1, bindGroup(group));
    ask(socket, 2, gatherFor(group, gather));
  });
  const lost = (): void => {
    // libuv stops watching a descriptor with an error pending, without a word (1.51).
    poll.stop();
    poll.start();
    poll.unref();
    onLost();
  };
  const read = (): void => {
    for (let i = 0; i < datagramsPerTurn && !over.disposed; i++) {
      const part = socket.receive();
      if (part === "empty") return;
      if (part === "lost") lost();
      else listener(recordsIn(part));
    }
  };
  /** Reads nothing for a while: an error that stays would be met without end. */
  const rest = (): void => {
    poll.stop();
    const again = (): void => {
      if (!over.disposed) lost();
    };
    setTimeout(guarded("netlink", again), restMs).unref();
  };
  const poll: Poll = pollFd(socket.fd, "readable", guarded("netlink", read, rest));
  opened.adopt(poll, () => poll.close());
  poll.unref();
  const over = opened.move();
  return over;
}

function ask(socket: NetlinkSocket, seq: number, payload: Uint8Array): void {
  const flags = NLM_F_REQUEST | NLM_F_ACK;
  socket.send(encodeMessage({ type: LOG_CONFIG, flags, seq, portId: 0, payload }));
  for (;;) {
    const part = socket.receive();
    if (part === "empty") return;
    // (What is logged meanwhile is not looked at.)
    const answer =
      part === "lost"
        ? undefined
        : parseMessages(part).find((each) => each.type === NLMSG_ERROR && each.seq === seq);
    if (answer === undefined) continue;
    const ack = parseAck(answer);
    if (ack.errno !== 0) throw ackError("Cannot read a log group, or another program has it", ack);
    return;
  }
}

const recordsIn = (part: Uint8Array): readonly LogRecord[] =>
  parseMessages(part).flatMap(({ type, payload }) =>
    type === LOG_PACKET ? [parseLogRecord(payload)] : [],
  );
