import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type IncomingMessage, request as overHttp } from "node:http";
import { request as overTls } from "node:https";

/** A key with its value, and the etcd lease it hangs on. */
export interface KeyValue {
  readonly key: string;
  readonly value: string;
  /** "0": none. */
  readonly lease: string;
}

/** What a watch reported; `value` undefined: deleted. */
export interface Change {
  readonly key: string;
  readonly value: string | undefined;
}

/** The revisions a watch was to begin at are gone. */
export class Compacted extends Error {}

export interface GatewayOptions {
  readonly endpoints: readonly string[];
  /** Paths of the files. */
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string };
}

interface WireKv {
  readonly key: string;
  readonly value?: string;
  readonly lease?: string;
}

interface WireWatch {
  readonly result?: {
    readonly header: { readonly revision?: string };
    readonly canceled?: boolean;
    readonly compact_revision?: string;
    readonly events?: readonly { readonly type?: string; readonly kv: WireKv }[];
  };
  readonly error?: unknown;
}

const wire = (text: string): string => Buffer.from(text).toString("base64");
const plain = (text = ""): string => Buffer.from(text, "base64").toString();
/** The end of the range of all keys that begin so. */
const after = (prefix: string): string =>
  prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);

/** (readline's own iterator lets an error of its input go by.) */
async function* linesOf(response: IncomingMessage): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of response) {
    const lines = (rest + String(chunk)).split("\n");
    rest = lines.pop() ?? "";
    yield* lines.filter((line) => line !== "");
  }
}

/** etcd v3 by its JSON gateway: another way in than podnet's own, with nothing of its code. */
export class Gateway {
  readonly #options: GatewayOptions;
  readonly #secrets: { ca: Buffer; cert: Buffer; key: Buffer } | undefined;
  #turn = 0;

  constructor(options: GatewayOptions) {
    this.#options = options;
    const { tls } = options;
    if (tls !== undefined)
      this.#secrets = {
        ca: readFileSync(tls.ca),
        cert: readFileSync(tls.cert),
        key: readFileSync(tls.key),
      };
  }

  /** All keys that begin so, and the revision they were read at. */
  async list(prefix: string): Promise<{ readonly kvs: KeyValue[]; readonly revision: bigint }> {
    const answer = (await this.#call("/v3/kv/range", {
      key: wire(prefix),
      range_end: wire(after(prefix)),
    })) as { header: { revision: string }; kvs?: WireKv[] };
    return {
      kvs: (answer.kvs ?? []).map(({ key, value, lease = "0" }) => ({
        key: plain(key),
        value: plain(value),
        lease,
      })),
      revision: BigInt(answer.header.revision),
    };
  }

  async get(key: string): Promise<string | undefined> {
    const { kvs } = (await this.#call("/v3/kv/range", { key: wire(key) })) as { kvs?: WireKv[] };
    return kvs?.[0] === undefined ? undefined : plain(kvs[0].value);
  }

  /** A new etcd lease. */
  async grant(seconds: number): Promise<string> {
    const { ID } = (await this.#call("/v3/lease/grant", { TTL: `${seconds}` })) as { ID: string };
    return ID;
  }

  async revoke(lease: string): Promise<void> {
    await this.#call("/v3/lease/revoke", { ID: lease });
  }

  /** Writes whatever stands there. */
  async put(key: string, value: string, lease: string): Promise<void> {
    await this.#call("/v3/kv/put", { key: wire(key), value: wire(value), lease });
  }

  /** Writes when there is none; false: there is. */
  async create(key: string, value: string, lease: string): Promise<boolean> {
    const { succeeded } = (await this.#call("/v3/kv/txn", {
      compare: [{ key: wire(key), target: "VERSION", result: "EQUAL", version: "0" }],
      success: [{ request_put: { key: wire(key), value: wire(value), lease } }],
    })) as { succeeded?: boolean };
    return succeeded === true;
  }

  async delete(key: string): Promise<void> {
    await this.#call("/v3/kv/deleterange", { key: wire(key) });
  }

  /** Changes from a revision on, batch by batch with the last one's revision; ends by throwing. */
  async *watch(
    prefix: string,
    from: bigint,
  ): AsyncGenerator<{ readonly changes: readonly Change[]; readonly revision: bigint }> {
    const response = await this.#open("/v3/watch", {
      create_request: {
        key: wire(prefix),
        range_end: wire(after(prefix)),
        start_revision: `${from}`,
      },
    });
    // A connection whose peer has gone reports nothing by itself.
    const pulse = setInterval(() => {
      this.get(prefix).catch((error: Error) => response.destroy(error));
    }, 1000);
    try {
      for await (const line of linesOf(response)) {
        const { result, error } = JSON.parse(line) as WireWatch;
        if (result === undefined)
          throw new Error(`The watch was refused: ${JSON.stringify(error)}`);
        if (result.compact_revision !== undefined) throw new Compacted("Compacted");
        if (result.canceled === true) throw new Error("The watch was cancelled");
        yield {
          changes: (result.events ?? []).map(({ type, kv }) => ({
            key: plain(kv.key),
            value: type === "DELETE" ? undefined : plain(kv.value),
          })),
          revision: BigInt(result.header.revision ?? 0),
        };
      }
      throw new Error("The watch ended");
    } finally {
      clearInterval(pulse);
      response.destroy();
    }
  }

  /** One after the other, from the one that answered last. */
  async #call(path: string, body: unknown): Promise<unknown> {
    const response = await this.#open(path, body);
    const chunks: Buffer[] = [];
    for await (const chunk of response) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    if (response.statusCode !== 200) throw new Error(`etcd answers ${path}: ${text}`);
    return JSON.parse(text);
  }

  async #open(path: string, body: unknown): Promise<IncomingMessage> {
    const { endpoints } = this.#options;
    let last: unknown;
    for (let tried = 0; tried < endpoints.length; tried++) {
      try {
        return await this.#post(endpoints[this.#turn % endpoints.length] as string, path, body);
      } catch (error) {
        last = error;
        this.#turn++;
      }
    }
    throw last;
  }

  async #post(endpoint: string, path: string, body: unknown): Promise<IncomingMessage> {
    const open = endpoint.startsWith("https:") ? overTls : overHttp;
    const sent = open(`${endpoint}${path}`, {
      method: "POST",
      agent: false,
      headers: { "Grpc-Metadata-hasleader": "true" },
      ...this.#secrets,
    });
    const limit = setTimeout(() => sent.destroy(new Error(`${endpoint} does not answer`)), 3000);
    sent.end(JSON.stringify(body));
    try {
      const [response] = (await once(sent, "response")) as [IncomingMessage];
      return response;
    } finally {
      clearTimeout(limit);
    }
  }
}
