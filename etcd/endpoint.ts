import { createClient, type Client } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { performAsync } from "../core/effect.ts";
import { isPodnetError } from "../core/errors.ts";
import { Connection, type EtcdTls } from "./connection.ts";
import { callError, isTokenRefused } from "./errors.ts";
import { Auth, KV, Lease, Watch } from "./gen/etcdserverpb/rpc_pb.ts";

export interface Credentials {
  readonly user: string;
  readonly password: string;
}

export interface EndpointOptions {
  readonly tls: EtcdTls;
  readonly credentials: Credentials | undefined;
  /** Longest for a connection to be made or to answer, milliseconds. */
  readonly answerMs: number;
  /** Longest for a call, milliseconds. */
  readonly callMs: number;
}

/** Sent with every call. */
export interface Sent {
  readonly headers: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

export interface Services {
  readonly kv: Client<typeof KV>;
  readonly lease: Client<typeof Lease>;
  readonly watch: Client<typeof Watch>;
}

/** A range of many thousands of keys has some MiB; a longer answer is not etcd's. */
const longestAnswer = 1 << 28;

/**
 * One etcd of several: its connection, and a token of its own, which it forgets when it restarts.
 */
export class Endpoint implements Disposable {
  readonly url: string;
  readonly services: Services;
  readonly #connection: Connection;
  readonly #auth: Client<typeof Auth>;
  readonly #options: EndpointOptions;
  #token: Promise<string> | undefined;

  constructor(url: string, options: EndpointOptions) {
    this.url = url;
    this.#options = options;
    this.#connection = new Connection(url, options.tls, options.answerMs);
    const transport = createGrpcTransport({
      baseUrl: url,
      sessionManager: this.#connection,
      acceptCompression: [],
      readMaxBytes: longestAnswer,
    });
    this.services = {
      kv: createClient(KV, transport),
      lease: createClient(Lease, transport),
      watch: createClient(Watch, transport),
    };
    this.#auth = createClient(Auth, transport);
  }

  /** When `ready` throws, the call was not sent. */
  ready(signal: AbortSignal | undefined): Promise<void> {
    return this.#connection.ready(signal);
  }

  /** Makes a call that answers once, with a new token if this one is not taken. */
  unary<T>(
    what: string,
    write: boolean,
    send: (services: Services, options: Sent & { timeoutMs: number }) => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const timeoutMs = this.#options.callMs;
    return this.withToken(async (sent) => {
      try {
        return await performAsync("etcd", what, () => send(this.services, { ...sent, timeoutMs }));
      } catch (thrown) {
        throw callError(thrown, this.url, write);
      }
    }, signal);
  }

  /** Calls once, and once more when the token was refused, of which nothing is done. */
  async withToken<T>(
    call: (sent: Sent) => Promise<T>,
    signal: AbortSignal | undefined,
    refused: (thrown: unknown) => boolean = isTokenRefused,
  ): Promise<T> {
    const sent = await this.#sent(signal);
    const used = this.#token;
    try {
      return await call(sent);
    } catch (thrown) {
      if (used === undefined || !refused(thrown)) throw thrown;
      // Another call may have requested a new token already.
      if (this.#token === used) this.#token = undefined;
      return await call(await this.#sent(signal));
    }
  }

  [Symbol.dispose](): void {
    this.#connection[Symbol.dispose]();
  }

  async #sent(signal: AbortSignal | undefined): Promise<Sent> {
    const { credentials } = this.#options;
    const headers: Record<string, string> = {
      // A member that has lost its leader says so, instead of waiting for it.
      hasleader: "true",
    };
    if (credentials !== undefined) {
      this.#token ??= this.#authenticate(credentials);
      const token = await this.#token.catch((thrown: unknown) => {
        this.#token = undefined;
        throw thrown;
      });
      if (token !== "") headers["authorization"] = token;
    }
    return { headers, ...(signal === undefined ? {} : { signal }) };
  }

  async #authenticate({ user, password }: Credentials): Promise<string> {
    try {
      const answer = await performAsync("etcd", "authenticate", () =>
        this.#auth.authenticate({ name: user, password }, { timeoutMs: this.#options.callMs }),
      );
      return answer.token;
    } catch (thrown) {
      const error = callError(thrown, this.url, false);
      // An etcd without authentication accepts every client.
      if (isPodnetError(error, "ETCD_FAILED") && /not enabled/.test(error.message)) return "";
      throw error;
    }
  }
}
