import { PodnetError } from "../../core/errors.ts";
import { type Outcome, parseOutcome } from "../protocol/exchange.ts";
import { cniError, refusal } from "../protocol/refusal.ts";
import { type Answer, answerLimit, parseAnswer, renderPost } from "./http.ts";
import type { Settings } from "./settings.ts";
import { errno, SysError, sys } from "./sys.ts";

/** podnetd does not listen, or its connection closed before it answered. */
export const away = Symbol("podnetd is away");
/** It has as much under way as it takes, and has read nothing of the request. */
const busy = Symbol("podnetd is busy");

export type NotAsked = typeof away | typeof busy;

/** Has podnetd do it. Throws when podnetd is there and it cannot be. */
export function call(settings: Settings, body: string): Outcome | NotAsked {
  const deadline = sys.monotonic() + settings.timeoutMs;
  let answer: Answer | undefined;
  try {
    const fd = sys.connect(settings.socket, settings.timeoutMs);
    send(fd, renderPost(body), deadline);
    answer = receive(fd, deadline);
  } catch (thrown) {
    if (!(thrown instanceof SysError)) throw thrown;
    if (gone.includes(thrown.errno)) return away;
    throw explain(thrown, settings);
  }
  if (answer === undefined) return away;
  if (answer.status === 200) return parseOutcome(answer.body);
  if (answer.status === 503) return busy;
  throw refusal(`podnetd refused the request with status ${answer.status}`, {
    code: "INTERNAL",
    cni: cniError.unclassified,
    hint: "podnetd's log says why",
  });
}

const hungUp: readonly number[] = [errno.reset, errno.brokenPipe];
const gone: readonly number[] = [errno.noEntry, errno.refused, ...hungUp];

/** One who does not read on may have said why before. */
function send(fd: number, bytes: Uint8Array, deadline: number): void {
  try {
    sys.sendAll(fd, bytes, deadline);
  } catch (thrown) {
    if (!(thrown instanceof SysError) || !hungUp.includes(thrown.errno)) throw thrown;
  }
}

/** Undefined when the other end went before it had said all. */
function receive(fd: number, deadline: number): Answer | undefined {
  let bytes = new Uint8Array(8192);
  for (let used = 0; ; ) {
    const count = sys.receive(fd, bytes.subarray(used), deadline);
    if (count === 0) return undefined;
    used += count;
    const answer = parseAnswer(bytes.subarray(0, used));
    if (answer !== undefined) return answer;
    if (used < bytes.length) continue;
    if (used > 2 * answerLimit) return undefined;
    const larger = new Uint8Array(2 * used);
    larger.set(bytes);
    bytes = larger;
  }
}

function explain(error: SysError, { socket, timeoutMs }: Settings): PodnetError {
  switch (error.errno) {
    case errno.timedOut:
      return refusal(`podnetd did not answer within ${timeoutMs / 1000} seconds`, {
        code: "DEADLINE_EXCEEDED",
        cni: cniError.tryLater,
        hint: "Try again; podnetd's log says what it was doing",
      });
    case errno.access:
      return new PodnetError("PERMISSION_DENIED", `The socket ${socket} may not be used`, {
        hint: "Run the plugin as root, as container runtimes do",
      });
    default:
      return new PodnetError("SYSCALL_FAILED", `${error.message} at ${socket}`, {
        field: "socket",
        hint: "Set socket in the network configuration to where podnetd listens",
        details: { errno: error.errno },
      });
  }
}
