import type { IncomingMessage } from "node:http";
import { isPodnetError, type PodnetError } from "../core/errors.ts";
import { guarded } from "../core/guard.ts";
import type { Access } from "./access.ts";
import { answerError, connectionError, kubernetesError } from "./errors.ts";
import { parseJson } from "./json.ts";
import { LineSplitter } from "./lines.ts";
import {
  type KubeObject,
  type Page,
  readEvent,
  readObject,
  readPage,
  type WatchEvent,
} from "./objects.ts";
import { type Request, send, textOfAnswer, TooLarge } from "./request.ts";

/** The bounds of what one call may take. */
export interface Limits {
  /** Longest until an answer begins, milliseconds. */
  readonly answerMs: number;
  /** Longest for a call other than a watch, milliseconds. */
  readonly callMs: number;
  /**
   * Longest silence in a watch, milliseconds: API servers send a bookmark each minute, so that the
   * other end is gone after two.
   */
  readonly silentMs: number;
  /** Shortest time after which the API server ends a watch, seconds; the longest is twice that. */
  readonly watchSeconds: number;
  /** Objects in one part of a list. */
  readonly pageItems: number;
  /** Bytes in one part of a list. */
  readonly pageBytes: number;
  /** Objects in a whole list. A server whose list never ends would fill this host's memory. */
  readonly listItems: number;
  /** Bytes in a whole list. */
  readonly listBytes: number;
}

const usual: Limits = {
  answerMs: 10_000,
  callMs: 30_000,
  silentMs: 120_000,
  watchSeconds: 300,
  pageItems: 250,
  pageBytes: 32 << 20,
  // Kubernetes supports clusters of up to 5,000 nodes.
  listItems: 20_000,
  // Of 5,000 nodes with a hundred KiB each, most of it images that they have.
  listBytes: 512 << 20,
};

/** A list whose parts are no longer there is begun again so many times. */
const mostAnew = 3;
/** So many parts of a list may be empty: a selector may match nothing in a part. */
const mostEmpty = 100;

/** All objects of a kind, as they were at one version. */
export interface Listed {
  readonly resourceVersion: string;
  readonly items: readonly KubeObject[];
}

/**
 * A client of Kubernetes' API: as much as is needed to follow objects and to write into one. All
 * calls end with their signal, and throw the errors of this module.
 */
export class KubeClient {
  readonly #access: Access;
  readonly #limits: Limits;
  readonly #random: () => number;

  constructor(access: Access, limits: Partial<Limits> = {}, random: () => number = Math.random) {
    this.#access = access;
    this.#limits = { ...usual, ...limits };
    this.#random = random;
  }

  /** The API server's host and port. */
  get server(): string {
    return this.#access.server.host;
  }

  /** One object; undefined if there is none. */
  async get(path: string, what: string, signal: AbortSignal): Promise<KubeObject | undefined> {
    const answer = await this.#send({ method: "GET", path, what }, this.#limit(signal));
    if (answer.statusCode === 404) {
      answer.destroy();
      return undefined;
    }
    return this.#object(answer, what);
  }

  /** All objects, in parts, so that neither end needs memory for all of their JSON. */
  async list(path: string, what: string, signal: AbortSignal): Promise<Listed> {
    for (let anew = 0; ; anew++) {
      try {
        return await this.#list(path, what, signal);
      } catch (thrown) {
        // The list was changed so often that its later parts, as they were then, are gone.
        if (!isPodnetError(thrown, "KUBERNETES_EXPIRED") || anew >= mostAnew) throw thrown;
      }
    }
  }

  /**
   * Changes an object by a strategic merge patch. With a `metadata.resourceVersion` in it, the
   * object must be at this version: `KUBERNETES_CONFLICT`.
   */
  async patch(path: string, patch: object, what: string, signal: AbortSignal): Promise<KubeObject> {
    const contentType = "application/strategic-merge-patch+json";
    const body = JSON.stringify(patch);
    const request: Request = { method: "PATCH", path, contentType, body, what };
    const answer = await this.#send(request, this.#limit(signal));
    return this.#object(answer, what);
  }

  /**
   * The changes after a version, until the API server ends the watch. First `open`, when it has
   * begun. An event that is cut off at the end is dropped: it comes again in the next watch.
   */
  async *watch(
    path: string,
    from: string,
    what: string,
    signal: AbortSignal,
  ): AsyncGenerator<WatchEvent | { readonly kind: "open" }> {
    const { silentMs, watchSeconds } = this.#limits;
    // Random, so that hosts that began together do not come again together.
    const seconds = Math.ceil(watchSeconds * (1 + this.#random()));
    const query = {
      watch: "true",
      resourceVersion: from,
      allowWatchBookmarks: "true",
      timeoutSeconds: String(seconds),
    };
    const answer = await this.#send({ method: "GET", path, query, what }, signal);
    if (answer.statusCode !== 200) throw await this.#error(answer, what);
    const silent = guarded("kubernetes", () => {
      answer.destroy(
        kubernetesError(
          "KUBERNETES_UNREACHABLE",
          `Kubernetes' API server at ${this.server} has been silent for ${silentMs / 1000} s`,
          { details: { server: this.server } },
        ),
      );
    });
    answer.setTimeout(silentMs, silent);
    const lines = new LineSplitter();
    try {
      yield { kind: "open" };
      for await (const chunk of answer as AsyncIterable<Buffer>)
        for (const line of lines.push(chunk)) yield readEvent(line);
    } catch (thrown) {
      throw connectionError(thrown, this.server);
    } finally {
      answer.destroy();
    }
  }

  async #list(path: string, what: string, signal: AbortSignal): Promise<Listed> {
    const items: KubeObject[] = [];
    let limit = this.#limits.pageItems;
    let next: string | undefined;
    let empty = 0;
    let bytes = 0;
    for (;;) {
      let page: Page;
      try {
        const query = { limit: String(limit), ...(next === undefined ? {} : { continue: next }) };
        const answer = await this.#send({ method: "GET", path, query, what }, this.#limit(signal));
        const text = await this.#text(answer, what);
        bytes += text.length;
        page = readPage(text);
      } catch (thrown) {
        if (!(thrown instanceof TooLarge)) throw thrown;
        // Objects of unusual size. One alone is always small enough.
        if (limit === 1) throw this.#tooLarge();
        limit = Math.ceil(limit / 8);
        continue;
      }
      items.push(...page.items);
      if (items.length > this.#limits.listItems)
        throw kubernetesError(
          "KUBERNETES_FAILED",
          `Kubernetes' API server lists more than ${this.#limits.listItems} objects`,
        );
      if (bytes > this.#limits.listBytes)
        throw kubernetesError(
          "KUBERNETES_FAILED",
          `Kubernetes' API server lists more than ${this.#limits.listBytes} bytes`,
        );
      // (An empty part that is not the last would let a list go on for ever.)
      if (page.items.length === 0 && page.next !== undefined && ++empty > mostEmpty)
        throw kubernetesError("KUBERNETES_FAILED", "A list of Kubernetes' API server never ends");
      if (page.next === undefined) return { resourceVersion: page.resourceVersion, items };
      next = page.next;
    }
  }

  /** Sends, and once more if the token was refused and its file has another one by now. */
  async #send(request: Request, signal: AbortSignal): Promise<IncomingMessage> {
    const { answerMs } = this.#limits;
    const used = this.#access.credentials();
    const answer = await send(this.#access, used, request, { answerMs, signal });
    if (answer.statusCode !== 401) return answer;
    const now = this.#access.credentials();
    if (now.token === used.token) return answer;
    answer.destroy();
    return send(this.#access, now, request, { answerMs, signal });
  }

  /** The body of a success. */
  async #text(answer: IncomingMessage, what: string): Promise<string> {
    const { statusCode = 0 } = answer;
    if (statusCode < 200 || statusCode > 299) throw await this.#error(answer, what);
    return textOfAnswer(answer, this.#limits.pageBytes, this.server);
  }

  /** The object that is the body of a success. */
  async #object(answer: IncomingMessage, what: string): Promise<KubeObject> {
    try {
      return readObject(parseJson(await this.#text(answer, what)));
    } catch (thrown) {
      throw thrown instanceof TooLarge ? this.#tooLarge() : thrown;
    }
  }

  #tooLarge(): PodnetError {
    const { pageBytes } = this.#limits;
    return kubernetesError(
      "KUBERNETES_FAILED",
      `Kubernetes' API server has an object of more than ${pageBytes} bytes`,
    );
  }

  async #error(answer: IncomingMessage, what: string): Promise<Error> {
    // A status has a few hundred bytes. Whatever is longer is not one.
    const text = await textOfAnswer(answer, 1 << 16, this.server).catch(() => "");
    const { "retry-after": retryAfter } = answer.headers;
    return answerError(answer.statusCode ?? 0, text, what, retryAfter);
  }

  #limit(signal: AbortSignal): AbortSignal {
    return AbortSignal.any([signal, AbortSignal.timeout(this.#limits.callMs)]);
  }
}
