import { performAsync } from "../../core/effect.ts";
import { limited } from "../../core/aborting.ts";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { guard, guarded } from "../../core/guard.ts";
import { paceReading, type Worked } from "../../linux/sockets/paced-socket.ts";
import {
  connectUnix,
  type PeerCredentials,
  peerCredentials,
  type UnixConnection,
} from "../../linux/sockets/unix-socket.ts";
import type { QmpArguments, QmpCommandName, QmpEvent, QmpReturn } from "./commands.ts";
import { standingHint } from "./standing.ts";
import { LineSplitter } from "./lines.ts";
import { notQmp, parseMessage, type QemuVersion, type QmpMessage } from "./message.ts";

export interface QmpOptions {
  readonly signal?: AbortSignal;
  /** Milliseconds until the greeting must be here; 10 s unless given. */
  readonly greetingMs?: number;
  /** Milliseconds a command may take unless it says otherwise; 10 s unless given. */
  readonly deadlineMs?: number;
  /** Bytes a line may have; 4 MiB unless given (`query-qmp-schema` of QEMU 7.2 takes 0.2). */
  readonly lineLimit?: number;
}

export interface CommandOptions {
  /** Gives up waiting; QEMU may still carry the command out, its reply is dropped. */
  readonly signal?: AbortSignal;
  readonly deadlineMs?: number;
}

/**
 * Lines of QEMU that are read in a second: events of a guest that has taken QEMU over, or makes it
 * chatter.
 */
const lineRate = { perSecond: 4096, burst: 16_384 };
/** Bytes looked at at once: some hundred lines. */
const pieceBytes = 8192;

/** Errors of a socket whose other end is gone. */
const brokenWire: readonly string[] = ["EPIPE", "ECONNRESET"];

interface Pending {
  readonly command: string;
  resolve(value: unknown): void;
  reject(error: PodnetError): void;
}

/**
 * One QMP session. Commands are pipelined and matched by id; a lost session rejects all that is
 * pending and is not revived: open a new one. QEMU serves one client per monitor at a time; a
 * second one gets no greeting until the first has left.
 */
export class QmpClient implements Disposable {
  readonly #connection: UnixConnection;
  readonly #deadlineMs: number;
  /** QEMU's, as far as the kernel says. */
  readonly #pid: number | undefined;
  readonly #lines: LineSplitter;
  readonly #pending = new Map<number, Pending>();
  readonly #eventListeners = new Set<(event: QmpEvent) => void>();
  readonly #closeListeners = new Set<(reason: PodnetError) => void>();
  readonly #greeting = Promise.withResolvers<QemuVersion>();
  #version: QemuVersion | undefined;
  #nextId = 1;
  #closed: PodnetError | undefined;
  /** Ends when no descriptor is on its way: until then no other command may be written. */
  #queue: Promise<void> = Promise.resolve();

  private constructor(connection: UnixConnection, options: QmpOptions) {
    this.#connection = connection;
    this.#pid = listenerOf(connection);
    this.#deadlineMs = options.deadlineMs ?? 10_000;
    this.#lines = new LineSplitter(options.lineLimit ?? 4 * 1024 * 1024);
    // The waiter for the greeting gets its failure; without one it is not an unhandled rejection.
    this.#greeting.promise.catch(() => {});
    const { socket } = connection;
    paceReading(socket, {
      source: "qemu",
      drop: () => this.#fail(connectionLost()),
      work: (chunk) => this.#take(chunk),
      rate: lineRate,
    });
    socket.on(
      "end",
      guarded("qemu", () => this.#fail(this.#endOfStream())),
    );
    socket.on(
      "error",
      guarded("qemu", (error: Error) => this.#fail(connectionLost(error))),
    );
    socket.on(
      "close",
      guarded("qemu", () => this.#fail(connectionLost())),
    );
  }

  /**
   * Connects, reads the greeting and leaves capabilities negotiation mode. Throws `SYSCALL_FAILED`
   * (no listener), `QMP_TIMEOUT`, `QMP_PROTOCOL`, `QEMU_EXITED`, `CANCELLED`.
   */
  static async open(path: string, options: QmpOptions = {}): Promise<QmpClient> {
    const connection = await connectUnix(path, options.signal);
    const client = new QmpClient(connection, options);
    try {
      await client.#greet(options.greetingMs ?? 10_000, options.signal);
      const negotiate = options.signal === undefined ? {} : { signal: options.signal };
      await client.execute("qmp_capabilities", {}, negotiate);
      return client;
    } catch (error) {
      client.close();
      throw error;
    }
  }

  /** QEMU's version as it greeted. */
  get version(): QemuVersion {
    return this.#version as QemuVersion;
  }

  /** Who listened when the session was opened. Throws `SYSCALL_FAILED` once it is over. */
  get peer(): PeerCredentials {
    return peerCredentials(this.#connection.fd);
  }

  /** Why the session is over; undefined while it lives. */
  get closed(): PodnetError | undefined {
    return this.#closed;
  }

  /**
   * Sends a command and returns QEMU's answer. Throws `QMP_FAILED` (details: `class`, `command`),
   * `QMP_TIMEOUT`, `CANCELLED`, or what ended the session.
   */
  execute<C extends QmpCommandName>(
    command: C,
    args: QmpArguments<C>,
    options: CommandOptions = {},
  ): Promise<QmpReturn<C>> {
    return performAsync(
      "qmp",
      command,
      () =>
        this.#request<QmpReturn<C>>(command, args, options, async (line) => {
          await this.#queue;
          this.#connection.socket.write(line);
        }),
      () => this.#limit(options),
    );
  }

  /**
   * `getfd`: gives QEMU a copy of `fd` under a name (a name it already has is replaced and its
   * descriptor closed). Runs alone on the wire: QEMU takes the descriptor that came last, and a raw
   * sendmsg must not cut a queued line.
   */
  passFd(name: string, fd: number, options: CommandOptions = {}): Promise<void> {
    return performAsync(
      "qmp",
      "getfd",
      async () => {
        await this.#sendFd("getfd", { fdname: name }, fd, options);
      },
      () => this.#limit(options),
    );
  }

  #limit({ signal, deadlineMs = this.#deadlineMs }: CommandOptions): AbortSignal {
    return limited(deadlineMs, signal);
  }

  /**
   * `add-fd`: gives QEMU a copy of `fd` in a set of its own, and answers the set's number. `opaque`
   * says whose it is. Runs alone on the wire, as `passFd`.
   */
  addFd(opaque: string, fd: number, options: CommandOptions = {}): Promise<number> {
    return performAsync(
      "qmp",
      "add-fd",
      async () => {
        const { "fdset-id": set } = await this.#sendFd("add-fd", { opaque }, fd, options);
        if (Number.isSafeInteger(set) && set >= 0) return set;
        throw new PodnetError("QMP_PROTOCOL", "QEMU answered add-fd without the number of a set");
      },
      () => this.#limit(options),
    );
  }

  async #sendFd<C extends "getfd" | "add-fd">(
    command: C,
    args: QmpArguments<C>,
    fd: number,
    options: CommandOptions,
  ): Promise<QmpReturn<C>> {
    const before = this.#queue;
    const { promise: done, resolve: leave } = Promise.withResolvers<void>();
    this.#queue = done;
    const giveUp = this.#limit(options);
    let sent = before;
    try {
      return await this.#request<QmpReturn<C>>(command, args, options, (line) => {
        sent = before.then(() => this.#connection.sendWithFd(line, fd, giveUp));
        return sent;
      });
    } finally {
      // A request given up early must not let the next line overtake this one or those before it.
      void sent.then(leave, leave);
    }
  }

  /** Subscribes to every event, in order; returns the unsubscriber. */
  onEvent(listener: (event: QmpEvent) => void): () => void {
    this.#eventListeners.add(listener);
    return () => this.#eventListeners.delete(listener);
  }

  /** Called once when the session ends, by whatever cause. Returns the unsubscriber. */
  onClose(listener: (reason: PodnetError) => void): () => void {
    this.#closeListeners.add(listener);
    return () => this.#closeListeners.delete(listener);
  }

  /** Ends the session; what is pending is rejected with `CANCELLED`. QEMU runs on. */
  close(): void {
    this.#fail(new PodnetError("CANCELLED", "The QMP connection was closed by podnet"));
  }

  [Symbol.dispose](): void {
    this.close();
  }

  async #greet(deadlineMs: number, signal: AbortSignal | undefined): Promise<void> {
    const late = setTimeout(
      guarded("qemu", () =>
        this.#fail(
          new PodnetError("QMP_TIMEOUT", `QEMU sent no QMP greeting within ${deadlineMs} ms`, {
            hint:
              standingHint(this.#pid) ??
              "QEMU serves one QMP client at a time: another one may hold this monitor",
          }),
        ),
      ),
      deadlineMs,
    );
    const abort = (): void => this.#fail(cancelled("QMP greeting", signal));
    signal?.addEventListener("abort", abort, { once: true });
    try {
      if (signal?.aborted) abort();
      this.#version = await this.#greeting.promise;
    } finally {
      clearTimeout(late);
      signal?.removeEventListener("abort", abort);
    }
  }

  #request<Return>(
    command: string,
    args: object,
    options: CommandOptions,
    send: (line: Uint8Array) => Promise<void>,
  ): Promise<Return> {
    const { promise, resolve, reject } = Promise.withResolvers<Return>();
    const { signal, deadlineMs = this.#deadlineMs } = options;
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    if (signal?.aborted) return Promise.reject(this.#givenUp(command, signal));
    const id = this.#nextId++;
    const finish = (): void => {
      this.#pending.delete(id);
      clearTimeout(late);
      signal?.removeEventListener("abort", abort);
    };
    const pending: Pending = {
      command,
      resolve: (value) => {
        finish();
        resolve(value as Return);
      },
      reject: (error) => {
        finish();
        reject(error);
      },
    };
    const abort = (): void => pending.reject(this.#givenUp(command, signal));
    const late = setTimeout(() => pending.reject(this.#timedOut(command, deadlineMs)), deadlineMs);
    signal?.addEventListener("abort", abort, { once: true });
    this.#pending.set(id, pending);
    // QEMU 7.2 reads byte by byte, with six system calls for each.
    const given = Object.keys(args).length === 0 ? {} : { arguments: args };
    const line = encodeUtf8(`${JSON.stringify({ execute: command, ...given, id })}\n`);
    send(line).catch((thrown: unknown) => {
      const error = toPodnetError(thrown, "QMP_PROTOCOL");
      // Sending reports a broken wire a moment before the socket does. A descriptor that cannot be
      // sent for another reason leaves nothing on the wire.
      if (brokenWire.includes(String(error.details["errno"]))) this.#fail(connectionLost(error));
      else pending.reject(error);
    });
    return promise;
  }

  /** A time limit of the caller's that has passed is QEMU's silence, and no change of mind. */
  #givenUp(command: string, signal: AbortSignal | undefined): PodnetError {
    const reason: unknown = signal?.reason;
    const late = reason instanceof Error && reason.name === "TimeoutError";
    return late ? this.#timedOut(command) : cancelled(command, signal);
  }

  #timedOut(command: string, ms?: number): PodnetError {
    const within = ms === undefined ? "in time" : `within ${ms} ms`;
    return new PodnetError("QMP_TIMEOUT", `QEMU did not answer "${command}" ${within}`, {
      hint: standingHint(this.#pid) ?? overloaded,
      details: { command, ...(ms === undefined ? {} : { ms }) },
    });
  }

  /** Takes a piece that holds a bounded number of lines, however short they are. */
  #take(bytes: Uint8Array): Worked {
    const chunk = bytes.subarray(0, pieceBytes);
    const done = { bytes: chunk.length, units: 0, tokens: 0 };
    if (this.#closed !== undefined) return done;
    const lines = this.#try(() => this.#lines.push(chunk)) ?? [];
    for (const line of lines) {
      const message = line === "" ? undefined : this.#try(() => parseMessage(line));
      if (this.#closed !== undefined) break;
      if (message !== undefined) this.#dispatch(message);
    }
    return { ...done, units: lines.length, tokens: lines.length };
  }

  /** Reads what the peer sent; what cannot be read ends the session. */
  #try<T>(read: () => T): T | undefined {
    try {
      return read();
    } catch (error) {
      this.#fail(toPodnetError(error, "QMP_PROTOCOL"));
      return undefined;
    }
  }

  #dispatch(message: QmpMessage): void {
    if (message.kind === "greeting") {
      if (this.#version !== undefined) return this.#fail(unexpected("a second greeting"));
      this.#version = message.version;
      this.#greeting.resolve(message.version);
      return;
    }
    if (this.#version === undefined)
      return this.#fail(unexpected(`${message.kind} before the greeting`));
    if (message.kind === "event") {
      const { name, data, timestampMs } = message;
      for (const listener of this.#eventListeners)
        guard("qemu", () => listener({ name, data, timestampMs }));
      return;
    }
    // Without an id QEMU could not even parse what we sent: no reply can be trusted any more.
    const { id } = message;
    if (id === undefined || id < 1 || id >= this.#nextId)
      return this.#fail(unexpected(`a reply to command ${id ?? "without id"}, never sent`));
    const pending = this.#pending.get(id);
    // Given up before its reply came.
    if (pending === undefined) return;
    if (message.kind === "return") pending.resolve(message.value);
    else pending.reject(refused(pending.command, message.errorClass, message.description));
  }

  #endOfStream(): PodnetError {
    if (this.#version === undefined) return unexpected("end of stream before the greeting");
    if (this.#lines.midLine) return unexpected("end of stream within a line");
    return connectionLost();
  }

  #fail(reason: PodnetError): void {
    if (this.#closed !== undefined) return;
    this.#closed = reason;
    this.#greeting.reject(reason);
    for (const pending of this.#pending.values()) pending.reject(reason);
    this.#connection.close();
    for (const listener of this.#closeListeners) guard("qemu", () => listener(reason));
    this.#eventListeners.clear();
    this.#closeListeners.clear();
  }
}

function listenerOf({ fd }: UnixConnection): number | undefined {
  try {
    return peerCredentials(fd).pid;
  } catch {
    // The process has closed it by now.
    return undefined;
  }
}

const unexpected = (what: string): PodnetError =>
  new PodnetError("QMP_PROTOCOL", `QMP peer sent ${what}`, { hint: notQmp });

const connectionLost = (cause?: unknown): PodnetError =>
  new PodnetError("QEMU_EXITED", "QEMU closed the QMP connection", {
    hint: "See podnetd's log for what QEMU said at its end",
    cause,
  });

const overloaded =
  "The host may be overloaded, or QEMU hangs: try again; podnet stop --force ends a pod's machine and keeps the pod";

const cancelled = (command: string, signal: AbortSignal | undefined): PodnetError =>
  new PodnetError("CANCELLED", `The caller gave up waiting for "${command}"`, {
    details: { command },
    cause: signal?.reason,
  });

const refused = (command: string, errorClass: string, description: string): PodnetError =>
  new PodnetError("QMP_FAILED", `QEMU refused "${command}": ${printable(description)}`, {
    hint: "podnet asks nothing that QEMU 7.2 refuses: see that this QEMU is not older, and report it",
    details: { class: errorClass, command },
  });
