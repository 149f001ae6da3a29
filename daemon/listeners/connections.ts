import type { Http2SecureServer, Http2Server, ServerHttp2Session } from "node:http2";
import type { Socket } from "node:net";
import { PodnetError, toPodnetError } from "../../core/errors.ts";
import type { ApiLimits } from "../config/limits.ts";
import type { Caller } from "./callers.ts";
import { reasonOf } from "./refusal-reason.ts";
import type { Request } from "./http.ts";
import { boundEnd } from "./session-end.ts";
import { boundHeaders } from "./slow-headers.ts";
import { TurnAway } from "./turn-away.ts";

export interface ConnectionsOptions {
  readonly limits: ApiLimits;
  /** Who calls on a connection that is not known. */
  readonly unknown: Caller;
  refused(reason: string): void;
}

/** The listeners, each with `limits.connections` places of its own. */
type Listener = "unix" | "tcp";

/** Connections whose caller is known, and the sessions of HTTP/2 on them. */
export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #open = new Set<Socket>();
  readonly #taken = { unix: 0, tcp: 0 };
  readonly #callers = new WeakMap<object, Caller>();
  readonly #turnAway = new TurnAway();

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  /** How many are open. */
  get size(): number {
    return this.#open.size;
  }

  /** Whether a socket's caller is known. */
  has(socket: object): boolean {
    return this.#callers.has(socket);
  }

  callerOf(request: Request): Caller {
    const session = "stream" in request ? request.stream.session : undefined;
    return this.#callers.get(session ?? request.socket) ?? this.#options.unknown;
  }

  /** Admits a connection to the unix socket; false when it is refused, and ends. */
  admitUnix(socket: Socket, caller: Caller): boolean {
    const why = this.#refusal(socket, caller, "unix");
    if (why !== undefined) this.#turnAway.unread(socket, why);
    return why === undefined;
  }

  /** Admits a connection by TCP, whose session is made before. */
  admitTls(socket: Socket, caller: Caller, session: ServerHttp2Session | undefined): void {
    const why = this.#refusal(socket, caller, "tcp");
    if (why !== undefined) this.#turnAway.begun(socket, session, why);
    else if (session !== undefined) this.#follow(session, socket, caller);
  }

  /** Hands an admitted connection to a server of HTTP/2. */
  handOn(server: Http2Server | Http2SecureServer, socket: Socket, caller: Caller): void {
    const made = (session: ServerHttp2Session): void => this.#follow(session, socket, caller);
    // Emitted meanwhile, which is the one moment both ends of it are known.
    server.once("session", made);
    server.emit("connection", socket);
    server.off("session", made);
  }

  /**
   * Resolves when all connections have ended, or after `ms`, when the remaining ones are destroyed.
   */
  async drain(ms: number): Promise<void> {
    const limit = Promise.withResolvers<void>();
    const timer = setTimeout(limit.resolve, ms);
    const closed = Promise.all(
      [...this.#open].map((socket) => new Promise((resolve) => socket.once("close", resolve))),
    );
    await Promise.race([closed, limit.promise]);
    clearTimeout(timer);
    for (const socket of this.#open) socket.destroy();
  }

  /** Takes a place for as long as the connection is open; the error when there is none. */
  #refusal(socket: Socket, caller: Caller, listener: Listener): PodnetError | undefined {
    const { limits, refused } = this.#options;
    try {
      if (this.#taken[listener] >= limits.connections) throw tooMany(limits.connections);
      const place = caller.connection();
      this.#callers.set(socket, caller);
      this.#open.add(socket);
      this.#taken[listener]++;
      socket.once("close", () => {
        place[Symbol.dispose]();
        this.#open.delete(socket);
        this.#taken[listener]--;
      });
      return undefined;
    } catch (thrown) {
      const error = toPodnetError(thrown);
      refused(reasonOf(error));
      return error;
    }
  }

  /** Knows a session's caller, and bounds what it may take. */
  #follow(session: ServerHttp2Session, socket: Socket, caller: Caller): void {
    const { limits, refused } = this.#options;
    this.#callers.set(session, caller);
    boundHeaders(session, limits.requestMs, () => refused("slow_request"));
    boundEnd(session, socket, { ms: limits.idleMs, idle: () => refused("idle") });
  }
}

const tooMany = (limit: number): PodnetError =>
  new PodnetError("LIMIT_REACHED", `podnetd has ${limit} connections open, the most there may be`, {
    hint: "Try again later, or raise limits.connections",
    details: { limit: "limits.connections" },
  });
