import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { KV, Lease, Watch } from "../../etcd/gen/etcdserverpb/rpc_pb.ts";

/**
 * How an etcd is broken, which always answers at once: every call fails; watches are cancelled or
 * end as soon as they have begun; each answer is of another cluster; nothing is ever done that is
 * to be written.
 */
export const breakages = [
  "refuses",
  "is unavailable",
  "cancels watches",
  "ends watches",
  "changes",
  "writes nothing",
] as const;
export type Breakage = (typeof breakages)[number];

/** A server of etcd's API on loopback that is broken, and counts what it is asked. */
export class BrokenEtcd implements AsyncDisposable {
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();
  readonly #breakage: Breakage;
  readonly #value: string;
  #asked = 0;

  private constructor(breakage: Breakage, value: string) {
    this.#breakage = breakage;
    this.#value = value;
    this.#server = createServer(connectNodeAdapter({ routes: (router) => this.#routes(router) }));
    this.#server.on("session", (session) => {
      this.#sessions.add(session);
      session.on("close", () => this.#sessions.delete(session));
      session.on("error", () => {});
    });
  }

  /** Begins to listen. Every key that is asked for by its name has this value. */
  static async open(breakage: Breakage, value = ""): Promise<BrokenEtcd> {
    const etcd = new BrokenEtcd(breakage, value);
    await new Promise<void>((resolve) => etcd.#server.listen(0, "127.0.0.1", resolve));
    return etcd;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Calls so far. */
  get asked(): number {
    return this.#asked;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of this.#sessions) session.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #answer(): { clusterId: bigint; revision: bigint } {
    this.#asked++;
    if (this.#breakage === "refuses") throw new ConnectError("it is broken", Code.Internal);
    if (this.#breakage === "is unavailable") throw new ConnectError("not now", Code.Unavailable);
    return { clusterId: this.#breakage === "changes" ? BigInt(this.#asked) : 1n, revision: 5n };
  }

  #routes(router: ConnectRouter): void {
    const answer = (): { clusterId: bigint; revision: bigint } => this.#answer();
    const value = new TextEncoder().encode(this.#value);
    const breakage = this.#breakage;
    router.service(KV, {
      range: ({ key, rangeEnd }) => ({
        header: answer(),
        kvs: value.length > 0 && rangeEnd.length === 0 ? [{ key, value, modRevision: 3n }] : [],
      }),
      put: () => ({ header: answer() }),
      deleteRange: () => ({ header: answer() }),
      txn: ({ failure }) => ({
        header: answer(),
        succeeded: false,
        responses: failure.map(() => ({
          response: { case: "responseRange" as const, value: { header: { revision: 5n } } },
        })),
      }),
      compact: () => ({ header: answer() }),
    });
    router.service(Lease, {
      leaseGrant: ({ ID, TTL }) => ({ header: answer(), ID: ID === 0n ? 7n : ID, TTL }),
      leaseRevoke: () => ({ header: answer() }),
      leaseTimeToLive: ({ ID }) => ({ header: answer(), ID, TTL: -1n }),
      async *leaseKeepAlive(requests) {
        for await (const { ID } of requests) yield { header: answer(), ID, TTL: 0n };
      },
    });
    router.service(Watch, {
      async *watch(requests, { signal }) {
        const header = answer();
        if (breakage === "ends watches") return;
        yield { header, created: true };
        if (breakage === "cancels watches") {
          yield { header, canceled: true, cancelReason: "it is broken" };
          return;
        }
        for await (const _request of requests) if (signal.aborted) return;
      },
    });
  }
}
