import { closeSync } from "node:fs";
import { perform } from "../../core/effect.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { PodnetError } from "../../core/errors.ts";
import { connect, send, socket } from "../ffi/libc.ts";
import { checked } from "../syscall-error.ts";

const AF_UNIX = 1;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const MSG_NOSIGNAL = 0x4000;

/** Possible notifications; the last is the longest time until the next, in microseconds. */
export type ServiceState =
  | "READY=1"
  | "STOPPING=1"
  | "WATCHDOG=1"
  | `EXTEND_TIMEOUT_USEC=${number}`;

/**
 * How often to notify of `WATCHDOG=1`, milliseconds: twice within the time that the service manager
 * set (sd_watchdog_enabled(3)). Undefined when it watches no process, or another one.
 */
export function watchdogEveryMs(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): number | undefined {
  const { WATCHDOG_USEC: usec = "", WATCHDOG_PID: watched } = env;
  if (!/^[1-9][0-9]{0,14}$/.test(usec)) return undefined;
  if (watched !== undefined && watched !== `${pid}`) return undefined;
  return Math.max(1, Math.floor(Number(usec) / 2000));
}

/**
 * Notifies the service manager of the service's state, as sd_notify(3) does. `address` is the value
 * of NOTIFY_SOCKET: a path, or a name in the abstract namespace after an `@`. Never waits. Throws
 * `SYSCALL_FAILED`, `INVALID_ARGUMENT`.
 */
export function notifyServiceManager(address: string, state: ServiceState): void {
  const what = `Cannot notify "${address}" of ${state}`;
  const name = encodeUtf8(address);
  // An abstract name is as long as the address says: no NUL ends it, and sun_path may be full.
  if (!/^[@/]./.test(address) || name.length > 108)
    throw new PodnetError(
      "INVALID_ARGUMENT",
      `${what}: it is neither a path nor an abstract name`,
      {
        field: "NOTIFY_SOCKET",
        hint: "Write an absolute path, or @ and a name, of at most 108 bytes",
      },
    );
  if (address.startsWith("@")) name[0] = 0;
  // struct sockaddr_un { u16 family; char path[108]; }
  const to = new Uint8Array(2 + name.length);
  to[0] = AF_UNIX;
  to.set(name, 2);
  const fd = checked(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket", what);
  try {
    perform("socket", "notify the service manager", () => {
      checked(connect(fd, to, to.length), "connect", what);
      const message = encodeUtf8(state);
      checked(send(fd, message, message.length, MSG_NOSIGNAL), "send", what);
    });
  } finally {
    closeSync(fd);
  }
}
