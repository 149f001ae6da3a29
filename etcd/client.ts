import { throwIfAborted } from "../core/aborting.ts";
import { isPodnetError, PodnetError } from "../core/errors.ts";
import type { EtcdTls } from "./connection.ts";
import { type Credentials, Endpoint, type Sent, type Services } from "./endpoint.ts";
import { etcdError, togetherError } from "./errors.ts";
import type * as api from "./etcd.ts";
import type { PutResponse } from "./gen/etcdserverpb/rpc_pb.ts";
import {
  answerOf,
  bytesOf,
  keyValueOf,
  rangeOf,
  resultOf,
  wireCompare,
  wireOperation,
} from "./messages.ts";
import { type Needs, needsOf, reads, withNeeds, writes } from "./rights.ts";
import { type WatchTiming, watchOn } from "./watch.ts";

export interface EtcdOptions {
  /**
   * `https://10.0.0.1:2379` each; the first to be asked is drawn, so that many hosts spread over
   * them.
   */
  readonly endpoints: readonly string[];
  /** For endpoints of https; a certificate of our own only where etcd asks for one. */
  readonly tls?: EtcdTls;
  readonly credentials?: Credentials;
  readonly timing?: Partial<EtcdTiming>;
  readonly random?: () => number;
}

export interface EtcdTiming extends WatchTiming {
  /** Longest for a connection to be made, and to answer before it is used again. */
  readonly answerMs: number;
  /** Longest for a call that was sent. */
  readonly callMs: number;
}

/** So a frozen etcd is noticed within three seconds, by calls and by watches. */
const defaultTiming: EtcdTiming = { answerMs: 1000, callMs: 2000, askMs: 1000, silenceMs: 2500 };

/**
 * A client of etcd; it sends nothing before the first call. Throws `CONFIG_INVALID` for an invalid
 * endpoint.
 */
export function connectEtcd(options: EtcdOptions): EtcdClient {
  return new EtcdClient(options);
}

/** The origin of an endpoint in a configuration. */
function originOf(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const bare =
    url !== undefined && url.pathname === "/" && `${url.username}${url.search}${url.hash}` === "";
  if (url === undefined || !bare || !/^https?:$/.test(url.protocol))
    throw new PodnetError("CONFIG_INVALID", `"${text}" is no endpoint of etcd`, {
      hint: "Write it as https://10.0.0.1:2379, or http:// without TLS",
    });
  return url.origin;
}

type Send<T> = (services: Services, sent: Sent & { timeoutMs: number }) => Promise<T>;

class EtcdClient implements api.Etcd, Disposable {
  readonly #endpoints: readonly Endpoint[];
  readonly #timing: EtcdTiming;
  readonly #user: string | undefined;
  /** Which of them answered last. */
  #current: number;

  constructor({ endpoints, tls = {}, credentials, timing, random = Math.random }: EtcdOptions) {
    this.#timing = { ...defaultTiming, ...timing };
    this.#user = credentials?.user;
    const { answerMs, callMs } = this.#timing;
    if (endpoints.length === 0) throw new PodnetError("CONFIG_INVALID", "etcd has no endpoint");
    this.#endpoints = endpoints.map(
      (text) => new Endpoint(originOf(text), { tls, credentials, answerMs, callMs }),
    );
    this.#current = Math.floor(random() * endpoints.length);
  }

  async range(where: api.Where, options: api.RangeOptions = {}): Promise<api.RangeAnswer> {
    const { revision = 0n, limit = 0, keysOnly = false, signal } = options;
    const request = { ...rangeOf(where), revision, limit: BigInt(limit), keysOnly };
    const { header, kvs, more } = await this.#call(
      "range",
      "reads",
      ({ kv }, sent) => kv.range(request, sent),
      signal,
      reads(where),
    );
    return { ...answerOf(header), kvs: kvs.map(keyValueOf), more };
  }

  async put(key: string, value: api.Value, options: api.PutOptions = {}): Promise<api.Answer> {
    const request = { key: bytesOf(key), value: bytesOf(value), lease: options.lease ?? 0n };
    const send: Send<PutResponse> = ({ kv }, sent) => kv.put(request, sent);
    return answered(await this.#call("put", "writes", send, options.signal, writes({ key })));
  }

  async delete(where: api.Where, { signal }: api.CallOptions = {}): Promise<api.DeleteAnswer> {
    const { header, deleted } = await this.#call(
      "delete",
      "writes",
      ({ kv }, sent) => kv.deleteRange(rangeOf(where), sent),
      signal,
      writes(where),
    );
    return { ...answerOf(header), deleted: Number(deleted) };
  }

  async txn(txn: api.Txn, { signal }: api.CallOptions = {}): Promise<api.TxnAnswer> {
    const request = {
      compare: txn.when.map(wireCompare),
      success: txn.do.map(wireOperation),
      failure: (txn.otherwise ?? []).map(wireOperation),
    };
    const { header, succeeded, responses } = await this.#call(
      "txn",
      "writes",
      ({ kv }, sent) => kv.txn(request, sent),
      signal,
      needsOf(txn),
    );
    return { ...answerOf(header), succeeded, results: responses.map(resultOf) };
  }

  async grant(ttlSeconds: number, options: api.GrantOptions = {}): Promise<api.GrantAnswer> {
    const request = { TTL: BigInt(ttlSeconds), ID: options.lease ?? 0n };
    const answer = await this.#call(
      "grant",
      "writes",
      ({ lease }, sent) => lease.leaseGrant(request, sent),
      options.signal,
    );
    if (answer.error !== "") throw etcdError("ETCD_FAILED", `etcd said: ${answer.error}`);
    return { ...answerOf(answer.header), lease: answer.ID, ttlSeconds: Number(answer.TTL) };
  }

  async revoke(lease: bigint, { signal }: api.CallOptions = {}): Promise<api.Answer> {
    return answered(
      await this.#call(
        "revoke",
        "writes",
        (services, sent) => services.lease.leaseRevoke({ ID: lease }, sent),
        signal,
      ),
    );
  }

  async keepAlive(lease: bigint, { signal }: api.CallOptions = {}): Promise<number | undefined> {
    // (Done twice it is the same: another endpoint may be asked.)
    const answer = await this.#call(
      "keep alive",
      "reads",
      (services, sent) => firstOf(services.lease.leaseKeepAlive(once({ ID: lease }), sent)),
      signal,
    );
    return answer === undefined || answer.TTL <= 0n ? undefined : Number(answer.TTL);
  }

  async timeToLive(
    lease: bigint,
    { signal }: api.CallOptions = {},
  ): Promise<api.TimeToLive | undefined> {
    const { TTL, grantedTTL } = await this.#call(
      "time to live",
      "reads",
      (services, sent) => services.lease.leaseTimeToLive({ ID: lease }, sent),
      signal,
    );
    if (TTL < 0n) return undefined;
    return { ttlSeconds: Number(TTL), grantedSeconds: Number(grantedTTL) };
  }

  async compact(revision: bigint, { signal }: api.CallOptions = {}): Promise<api.Answer> {
    return answered(
      await this.#call(
        "compact",
        "writes",
        ({ kv }, sent) => kv.compact({ revision, physical: true }, sent),
        signal,
      ),
    );
  }

  async *watch(where: api.Where, { from, signal }: api.WatchOptions): AsyncGenerator<api.Watched> {
    const asked = this.#anyEndpoint(async (one) => {
      // A watch with a token from before a restart fails with "permission denied", without the
      // reason.
      const begin = (sent: Sent): Promise<AsyncGenerator<api.Watched>> =>
        begun(watchOn(one, where, from, sent, this.#timing));
      return [
        await one.withToken(begin, signal, (error) => isPodnetError(error, "ETCD_DENIED")),
        one,
      ] as const;
    }, signal);
    const [watched, endpoint] = await asked.catch((thrown: unknown) => {
      throw withNeeds(thrown, reads(where), this.#user);
    });
    try {
      yield* watched;
    } catch (thrown) {
      throwIfAborted(signal, "The watch");
      if (isPodnetError(thrown, "ETCD_UNREACHABLE")) this.#leave(endpoint);
      throw withNeeds(thrown, reads(where), this.#user);
    }
  }

  /** Ends all connections; calls that still run fail. */
  [Symbol.dispose](): void {
    for (const endpoint of this.#endpoints) endpoint[Symbol.dispose]();
  }

  /** One call. A call that one endpoint may have carried out is not repeated at another. */
  async #call<T>(
    what: string,
    kind: "reads" | "writes",
    send: Send<T>,
    signal: AbortSignal | undefined,
    needs?: Needs,
  ): Promise<T> {
    try {
      return await this.#anyEndpoint(
        (endpoint) => endpoint.unary(what, kind === "writes", send, signal),
        signal,
      );
    } catch (thrown) {
      throw needs === undefined ? thrown : withNeeds(thrown, needs, this.#user);
    }
  }

  /** Tries each endpoint once, beginning with the one that answered last. */
  async #anyEndpoint<T>(
    call: (endpoint: Endpoint) => Promise<T>,
    signal: AbortSignal | undefined,
  ): Promise<T> {
    const failures: PodnetError[] = [];
    for (let tried = 0; tried < this.#endpoints.length; tried++) {
      throwIfAborted(signal, "The call to etcd");
      const endpoint = this.#endpoints[this.#current] as Endpoint;
      try {
        await endpoint.ready(signal);
        return await call(endpoint);
      } catch (thrown) {
        throwIfAborted(signal, "The call to etcd");
        if (!isPodnetError(thrown, "ETCD_UNREACHABLE", "ETCD_DENIED")) throw thrown;
        this.#leave(endpoint);
        failures.push(thrown);
        if (thrown.details["uncertain"] === true) break;
      }
    }
    throw failures.length === 1 ? failures[0] : togetherError(failures);
  }

  /** The next one is asked from now on, unless another call has gone on already. */
  #leave(endpoint: Endpoint): void {
    const at = this.#endpoints.indexOf(endpoint);
    if (at === this.#current) this.#current = (at + 1) % this.#endpoints.length;
  }
}

const answered = ({ header }: { header?: Parameters<typeof answerOf>[0] }): api.Answer =>
  answerOf(header);

/** A stream of one request: etcd answers it, and ends the call. */
async function* once<T>(request: T): AsyncGenerator<T> {
  yield request;
}

async function firstOf<T>(answers: AsyncIterable<T>): Promise<T | undefined> {
  for await (const answer of answers) return answer;
  return undefined;
}

/** A watch that has said its first word; throws what it says instead. */
async function begun(watched: AsyncGenerator<api.Watched>): Promise<AsyncGenerator<api.Watched>> {
  const first = await watched.next();
  return (async function* (): AsyncGenerator<api.Watched> {
    try {
      if (first.done !== true) yield first.value;
      yield* watched;
    } finally {
      await watched.return(undefined);
    }
  })();
}
