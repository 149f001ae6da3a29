import { closeSync } from "node:fs";
import { Socket } from "node:net";
import { basename } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { abortable, throwIfAborted } from "../../core/aborting.ts";
import { perform, performAsync } from "../../core/effect.ts";
import { PodnetError } from "../../core/errors.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { connect, fcntl, getsockopt, lastErrno, send, socket } from "../ffi/libc.ts";
import { pollFd } from "../ffi/poll.ts";
import { sendRights } from "../ffi/scm-rights.ts";
import { errnoName } from "../rtnetlink/errno.ts";
import { checked, syscallError } from "../syscall-error.ts";
import { listenPath } from "./unix-path.ts";

export { listenPath, maxSocketPath, type SocketPath } from "./unix-path.ts";

const AF_UNIX = 1;
const SOCK_STREAM = 1;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
const SO_PEERGROUPS = 59;
const F_DUPFD_CLOEXEC = 1030;

/** A connected stream socket that can also hand over descriptors. */
export interface UnixConnection extends Disposable {
  /**
   * For everything but descriptors. It owns the descriptor: destroying it closes the connection. It
   * begins to read when it is first asked for: listen to its errors then.
   */
  readonly socket: Socket;
  /**
   * As `socket`, for who asks first: what comes goes to `take` alone, and is valid during the call
   * alone. All such sockets read into the same memory.
   */
  readInto(take: (bytes: Uint8Array) => void): Socket;
  readonly fd: number;
  /**
   * Writes `line` with a copy of `fd` attached to its first byte, whole and after everything
   * written before. Nothing may be written to `socket` until it has returned. `fd` stays the
   * caller's to close. Throws `SYSCALL_FAILED`; `CANCELLED` or `DEADLINE_EXCEEDED` when `signal`
   * aborts: of a line that had begun, the rest is still written.
   */
  sendWithFd(line: Uint8Array, fd: number, signal?: AbortSignal): Promise<void>;
  close(): void;
}

/**
 * Connects to a listening unix socket; `path` may be of any length. Throws `SYSCALL_FAILED`
 * (`details.errno`: `ENOENT` no such path, `ECONNREFUSED` no listener), `CANCELLED`,
 * `DEADLINE_EXCEEDED`.
 */
export async function connectUnix(path: string, signal?: AbortSignal): Promise<UnixConnection> {
  const what = `Cannot connect to "${path}"`;
  const doing = `Connecting to "${path}"`;
  throwIfAborted(signal, doing);
  using short = listenPath(path);
  const fd = openSocket(what);
  try {
    const effect = `connect ${basename(path)}`;
    while (!perform("socket", effect, () => tryConnect(fd, short.path, what))) {
      // The listener's backlog is full (QEMU's is 1), and the kernel does not notify when it
      // empties.
      await delay(5);
      throwIfAborted(signal, doing);
    }
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return new OpenConnection(fd);
}

/**
 * Connects once, without waiting, to see whether the socket has a listener. A listener whose
 * backlog is full counts too, since waiting for it may take for ever. Throws `SYSCALL_FAILED` as
 * `connectUnix` does.
 */
export function findListener(path: string): void {
  const what = `Cannot connect to "${path}"`;
  using short = listenPath(path);
  const fd = openSocket(what);
  try {
    perform("socket", `connect ${basename(path)}`, () => tryConnect(fd, short.path, what));
  } finally {
    closeSync(fd);
  }
}

const openSocket = (what: string): number =>
  checked(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket", what);

/** False when the listener's backlog is full. */
function tryConnect(fd: number, path: string, what: string): boolean {
  // struct sockaddr_un { u16 family; char path[108]; }
  const address = new Uint8Array(110);
  address[0] = AF_UNIX;
  address.set(encodeUtf8(path), 2);
  if (connect(fd, address, address.length) === 0) return true;
  const errno = lastErrno();
  if (errnoName(errno) === "EAGAIN") return false;
  throw syscallError("connect", errno, what);
}

const handingOver = "Handing over a descriptor";

/**
 * What sockets read into that keep nothing of it: each read into memory of its own would be garbage
 * of 64 KiB, and V8 collects all of its heap after every few MiB of such.
 */
let readMemory: Uint8Array | undefined;
const readBytes = 64 * 1024;

class OpenConnection implements UnixConnection {
  readonly fd: number;
  #socket: Socket | undefined;

  constructor(fd: number) {
    this.fd = fd;
  }

  /**
   * Made on first use, when the caller is ready to listen: it reads at once, and an error without a
   * listener ends the process.
   */
  get socket(): Socket {
    this.#socket ??= new Socket({ fd: this.fd, readable: true, writable: true });
    return this.#socket;
  }

  readInto(take: (bytes: Uint8Array) => void): Socket {
    if (this.#socket !== undefined) throw new Error("The socket is read already");
    const buffer = (readMemory ??= new Uint8Array(readBytes));
    const callback = (count: number): boolean => {
      take(buffer.subarray(0, count));
      return true;
    };
    const onread = { buffer, callback };
    this.#socket = new Socket({ fd: this.fd, readable: true, writable: true, onread });
    return this.#socket;
  }

  sendWithFd(line: Uint8Array, fd: number, signal?: AbortSignal): Promise<void> {
    return performAsync(
      "socket",
      "send descriptor",
      () => this.#sendWithFd(line, fd, signal),
      () => signal,
    );
  }

  async #sendWithFd(line: Uint8Array, fd: number, signal?: AbortSignal): Promise<void> {
    const what = "Cannot hand over a descriptor";
    for (;;) {
      throwIfAborted(signal, handingOver);
      // writableLength counts what libuv still holds: a raw sendmsg must not land in the middle of
      // a queued write.
      if (this.socket.writableLength > 0) await this.#write(new Uint8Array(0), what, signal);
      if (this.socket.destroyed) throw syscallError("sendmsg", 32, what);
      if (this.socket.writableLength > 0) continue;
      const sent = sendRights(this.fd, line, fd);
      if (sent >= 0) {
        if (sent < line.length) await this.#write(line.subarray(sent), what, signal);
        return;
      }
      if (errnoName(-sent) !== "EAGAIN") throw syscallError("sendmsg", -sent, what);
      await writable(this.fd, what, signal);
    }
  }

  async #write(bytes: Uint8Array, what: string, signal: AbortSignal | undefined): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.socket.write(bytes, (error) => {
      if (error === null || error === undefined) resolve();
      else reject(new PodnetError("SYSCALL_FAILED", `${what}: ${error.message}`, { cause: error }));
    });
    await (signal === undefined ? promise : abortable(promise, signal, handingOver));
  }

  close(): void {
    this.socket.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Resolves when `fd` takes bytes again. Throws `SYSCALL_FAILED`, `CANCELLED`, `DEADLINE_EXCEEDED`.
 */
async function writable(fd: number, what: string, signal: AbortSignal | undefined): Promise<void> {
  using opened = new DisposableStack();
  // libuv allows one watcher per descriptor, and the net.Socket is it.
  const copy = opened.adopt(checked(fcntl(fd, F_DUPFD_CLOEXEC, 3), "fcntl", what), closeSync);
  const { promise, resolve } = Promise.withResolvers<void>();
  const poll = pollFd(copy, "writable", resolve);
  opened.defer(() => poll.close());
  await (signal === undefined ? promise : abortable(promise, signal, handingOver));
}

/** Who is at the other end of a unix socket, as it was when it connected (or began to listen). */
export interface PeerCredentials {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

/**
 * Reads SO_PEERCRED (unix(7)). The pid is 0 for a peer outside this pid namespace. Throws
 * `SYSCALL_FAILED`.
 */
export function peerCredentials(socketFd: number): PeerCredentials {
  // struct ucred { pid_t pid; uid_t uid; gid_t gid; }
  const value = new Uint8Array(12);
  const length = Uint8Array.of(12, 0, 0, 0);
  checked(
    getsockopt(socketFd, SOL_SOCKET, SO_PEERCRED, value, length),
    "getsockopt",
    "Cannot determine who is connected",
  );
  const view = new DataView(value.buffer);
  return {
    pid: view.getInt32(0, true),
    uid: view.getUint32(4, true),
    gid: view.getUint32(8, true),
  };
}

/**
 * The supplementary groups of the process at the other end, at the time it connected: SO_PEERGROUPS
 * (Linux 4.13). /proc/PID/status would describe the current owner of a reused pid. Throws
 * `SYSCALL_FAILED`.
 */
export function peerGroups(socketFd: number): readonly number[] {
  // NGROUPS_MAX is 65,536 (limits.h), four bytes each; nearly everybody has a handful.
  for (let room = 64; ; room *= 32) {
    const value = new Uint8Array(4 * room);
    const length = new Uint8Array(4);
    const lengthView = new DataView(length.buffer);
    lengthView.setUint32(0, value.length, true);
    const status = getsockopt(socketFd, SOL_SOCKET, SO_PEERGROUPS, value, length);
    if (status !== 0 && errnoName(lastErrno()) === "ERANGE" && room < 65_536) continue;
    checked(status, "getsockopt", "Cannot determine the groups of the connected process");
    const view = new DataView(value.buffer);
    return Array.from({ length: lengthView.getUint32(0, true) / 4 }, (_, i) =>
      view.getUint32(4 * i, true),
    );
  }
}

/**
 * The descriptor of a socket that Node accepted, for `peerCredentials`; undefined once it is
 * closed. Node has no public way to it; `_handle.fd` has been there since 0.x, and this is the one
 * place that uses it.
 */
export function descriptorOf(connection: Socket): number | undefined {
  const handle = (connection as unknown as { readonly _handle?: { readonly fd?: number } | null })
    ._handle;
  return handle?.fd !== undefined && handle.fd >= 0 ? handle.fd : undefined;
}

const MSG_NOSIGNAL = 0x4000;
const none = new Uint8Array(0);

/**
 * Whether the other end of a unix connection is closed. Node reports the end of what comes, which
 * is the same for one that has closed its half alone and waits for an answer. Sending nothing fails
 * where there is no receiver.
 */
export function isClosedThere(connection: Socket): boolean {
  const fd = descriptorOf(connection);
  return fd === undefined || send(fd, none, 0, MSG_NOSIGNAL) < 0;
}
