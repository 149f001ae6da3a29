import * as http2 from "node:http2";
import type { GrpcTransportOptions } from "@connectrpc/connect-node";
import { abortable } from "../core/aborting.ts";
import { performAsync } from "../core/effect.ts";
import { isPodnetError, PodnetError } from "../core/errors.ts";
import { guarded } from "../core/guard.ts";
import { connectionError, etcdError } from "./errors.ts";

type SessionManager = NonNullable<GrpcTransportOptions["sessionManager"]>;

/** Trusted authorities and own certificate, PEM; without `ca` the system's authorities. */
export interface EtcdTls {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
}

/**
 * The connection to one endpoint. Every call is preceded by `ready`, which connects, or checks that
 * the connection still answers: so a call that could not be sent is distinguished from one whose
 * answer was lost. (Connect's own manager does not: it takes a socket that a frozen etcd never
 * accepted for a connection.)
 */
export class Connection implements SessionManager, Disposable {
  readonly authority: string;
  readonly #tls: EtcdTls;
  /** Longest until an answer is there, milliseconds. */
  readonly #answerMs: number;
  #session: http2.ClientHttp2Session | undefined;
  /** Includes sessions on which etcd wants no new calls and that still have some. */
  readonly #sessions = new Set<http2.ClientHttp2Session>();
  readonly #streams = new WeakMap<http2.ClientHttp2Session, number>();
  #heardAt = 0;
  #becoming: Promise<void> | undefined;
  #closed = false;

  constructor(authority: string, tls: EtcdTls, answerMs: number) {
    this.authority = authority;
    this.#tls = tls;
    this.#answerMs = answerMs;
  }

  /**
   * Returns when etcd has answered on this connection within the last moments. Throws
   * `ETCD_UNREACHABLE`, `ETCD_DENIED`.
   */
  async ready(signal: AbortSignal | undefined): Promise<void> {
    if (this.#usable() !== undefined && performance.now() - this.#heardAt < this.#answerMs) return;
    // One attempt for all who wait; it goes on when one of them gives up.
    this.#becoming ??= this.#become().finally(() => {
      this.#becoming = undefined;
    });
    await (signal === undefined ? this.#becoming : abortable(this.#becoming, signal, "The call"));
  }

  request(
    method: string,
    path: string,
    headers: http2.OutgoingHttpHeaders,
  ): Promise<http2.ClientHttp2Stream> {
    const session = this.#usable();
    if (session === undefined) return Promise.reject(this.#lost("the connection has ended"));
    const stream = session.request({ ...headers, ":method": method, ":path": path });
    this.#count(session, 1);
    stream.once(
      "close",
      guarded("etcd", () => this.#count(session, -1)),
    );
    return Promise.resolve(stream);
  }

  notifyResponseByteRead(): void {
    this.#heardAt = performance.now();
  }

  [Symbol.dispose](): void {
    this.#closed = true;
    for (const session of this.#sessions) session.destroy();
  }

  /** An idle connection keeps no process alive. */
  #count(session: http2.ClientHttp2Session, more: 1 | -1): void {
    const streams = (this.#streams.get(session) ?? 0) + more;
    this.#streams.set(session, streams);
    if (streams === 0) session.unref();
    else session.ref();
  }

  #usable(): http2.ClientHttp2Session | undefined {
    const session = this.#session;
    return session === undefined || session.closed || session.destroyed ? undefined : session;
  }

  async #become(): Promise<void> {
    if (this.#closed) throw new PodnetError("CANCELLED", "The client of etcd was closed");
    const session = this.#usable();
    if (session === undefined) await this.#connect();
    else await this.#ping(session);
    this.#heardAt = performance.now();
  }

  async #connect(): Promise<void> {
    try {
      await performAsync("socket", "connect to etcd", () => this.#open());
    } catch (thrown) {
      // Also errors from before there is a socket: for an invalid key, say.
      throw this.#explained(thrown);
    }
  }

  #open(): Promise<void> {
    const session = http2.connect(this.authority, { ...this.#tls });
    const opened = Promise.withResolvers<void>();
    const fail = (error: unknown): void => {
      opened.reject(this.#explained(error));
      this.#sessions.delete(session);
      session.destroy();
    };
    const late = setTimeout(
      guarded("etcd", () => fail(this.#lost("no answer to a new connection"))),
      this.#answerMs,
    );
    // Settings come from etcd itself; a socket is taken by its kernel.
    const accepted = (): void => {
      session.unref();
      opened.resolve();
    };
    session.once(
      "remoteSettings",
      guarded("etcd", accepted, () => fail(this.#lost("its settings"))),
    );
    session.on("error", guarded("etcd", fail));
    // etcd refuses our certificate only after the handshake, and only the socket reports it (Node
    // 24).
    session.once("connect", (_, socket) => {
      const failed = (error: unknown): void => {
        fail(error);
        socket.destroy();
      };
      socket.on("error", guarded("etcd", failed));
    });
    const closed = (): void => {
      this.#sessions.delete(session);
      opened.reject(this.#lost("the connection was closed"));
    };
    session.once("close", guarded("etcd", closed));
    this.#session = session;
    this.#sessions.add(session);
    return opened.promise.finally(() => clearTimeout(late));
  }

  /**
   * Pings are sent right before a call alone: etcd ends connections that ping much and ask nothing.
   */
  #ping(session: http2.ClientHttp2Session): Promise<void> {
    const answered = Promise.withResolvers<void>();
    const late = setTimeout(
      guarded("etcd", () => {
        const error = this.#lost("no answer to a ping");
        answered.reject(error);
        session.destroy(error);
      }),
      this.#answerMs,
    );
    session.ping((error) => {
      if (error === null) answered.resolve();
      else answered.reject(this.#lost("the connection broke"));
    });
    return answered.promise.finally(() => clearTimeout(late));
  }

  #lost(reason: string): PodnetError {
    const endpoint = this.authority;
    return etcdError("ETCD_UNREACHABLE", `etcd at ${endpoint}: ${reason}`, { endpoint });
  }

  #explained(error: unknown): PodnetError {
    return isPodnetError(error, "ETCD_UNREACHABLE", "ETCD_DENIED", "CANCELLED")
      ? error
      : connectionError(error, this.authority);
  }
}
