import { Agent as HttpAgent, type IncomingMessage, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { rootCertificates } from "node:tls";
import { setTimeout as delay } from "node:timers/promises";
import { PodnetError } from "../../core/errors.ts";
import { Json } from "../archive/json.ts";
import { dockerHub } from "../reference.ts";
import type { Credential, Password } from "./auth-file.ts";
import { parseChallenge } from "./challenge.ts";
import { badAnswer, denied, unreachable } from "./registry-error.ts";

/** How a registry is reached. */
export interface RegistryAccess {
  /** As in names of images. */
  readonly registry: string;
  /** By HTTP without TLS. */
  readonly insecure: boolean;
  /** Certificates of authorities in addition to the usual ones, PEM. */
  readonly ca: string | undefined;
  readonly credential: Credential | undefined;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: IncomingMessage;
}

const mostRedirects = 5;
const idleMs = 30_000;
const tries = 5;
const firstDelayMs = 200;
const mostTokenBytes = 2 ** 20;

/** A client of the distribution protocol for one repository: only reads. */
export class RegistryClient implements Disposable {
  readonly #access: RegistryAccess;
  readonly #base: URL;
  readonly #repository: string;
  readonly #agents: { readonly "http:": HttpAgent; readonly "https:": HttpsAgent };
  #authorization: string | undefined;

  constructor(access: RegistryAccess, repository: string) {
    this.#access = access;
    this.#repository = repository;
    const host = access.registry === dockerHub ? "registry-1.docker.io" : access.registry;
    this.#base = new URL(`${access.insecure ? "http" : "https"}://${host}/`);
    const ca = access.ca === undefined ? {} : { ca: [...rootCertificates, access.ca] };
    this.#agents = {
      "http:": new HttpAgent({ keepAlive: true }),
      "https:": new HttpsAgent({ keepAlive: true, ...ca }),
    };
  }

  get host(): string {
    return this.#base.host;
  }

  /**
   * Asks for `/v2/REPOSITORY/…`. Answers of success and 404 are returned; failures of the
   * connection and of the server are tried again. Throws `REGISTRY_UNREACHABLE`, `REGISTRY_DENIED`,
   * `REGISTRY_FAILED`, `CANCELLED`.
   */
  async get(
    path: string,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Answer> {
    const url = new URL(`/v2/${this.#repository}/${path}`, this.#base);
    for (let attempt = 1; ; attempt += 1) {
      let failure: PodnetError;
      try {
        const answer = await this.#authorized(url, headers, signal);
        const { status, body } = answer;
        if ((status >= 200 && status < 300) || status === 404) return answer;
        body.destroy();
        if (status === 401 || status === 403) throw denied(this.host, this.#repository);
        failure = badAnswer(this.host, `answers with status ${status}`);
        if (status < 500 && status !== 429) throw failure;
      } catch (thrown) {
        if (signal.aborted || thrown instanceof PodnetError) throw thrown;
        failure = unreachable(this.host, thrown);
        if (!isPassing(thrown)) throw failure;
      }
      if (attempt === tries) throw failure;
      await delay(firstDelayMs * 2 ** attempt, undefined, { signal });
    }
  }

  async #authorized(
    url: URL,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Answer> {
    const first = await this.#follow(url, headers, signal);
    if (first.status !== 401) return first;
    first.body.destroy();
    const challenge = parseChallenge(first.headers["www-authenticate"] ?? "");
    const { credential } = this.#access;
    if (credential !== undefined && "registryToken" in credential)
      this.#authorization = `Bearer ${credential.registryToken}`;
    else if (challenge?.scheme === "basic" && credential !== undefined && "user" in credential)
      this.#authorization = basic(credential);
    else if (challenge?.scheme === "bearer")
      this.#authorization = await this.#token(challenge.parameters, signal);
    else throw denied(this.host, this.#repository);
    return this.#follow(url, headers, signal);
  }

  async #token(
    { realm = "", service, scope }: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<string> {
    const url = URL.parse(realm);
    if (url === null) throw badAnswer(this.host, "names no place that gives tokens");
    // A password is sent without TLS to the registry at most that is configured so.
    if (url.protocol !== "https:" && !(this.#access.insecure && url.protocol === "http:"))
      throw badAnswer(this.host, "wants its password sent without TLS");
    const asked = {
      ...(service === undefined ? {} : { service }),
      scope: scope ?? `repository:${this.#repository}:pull`,
    };
    const { status, body } = await this.#askForToken(url, asked, signal);
    if (status === 401 || status === 403) {
      body.destroy();
      throw denied(this.host, this.#repository);
    }
    if (status !== 200) {
      body.destroy();
      throw badAnswer(this.host, `gets no token: its server answers with status ${status}`);
    }
    const bytes = await readAnswer(body, mostTokenBytes, this.host);
    const json = Json.of(bytes, "The registry's token");
    const token = json.get("token")?.text ?? json.need("access_token").text;
    if (!/^[\x21-\x7e]+$/.test(token)) throw badAnswer(this.host, "gives a token that is none");
    return `Bearer ${token}`;
  }

  /** By OAuth's POST for a token that gets others, else by GET with user and password, if any. */
  #askForToken(
    url: URL,
    asked: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Answer> {
    const { credential } = this.#access;
    if (credential !== undefined && "identityToken" in credential) {
      const form = new URLSearchParams({
        ...asked,
        grant_type: "refresh_token",
        client_id: "podnet",
        refresh_token: credential.identityToken,
      });
      const headers = { "content-type": "application/x-www-form-urlencoded" };
      return this.#request(url, headers, signal, form.toString());
    }
    for (const [key, value] of Object.entries(asked)) url.searchParams.set(key, value);
    const isUser = credential !== undefined && "user" in credential;
    return this.#request(url, isUser ? { authorization: basic(credential) } : {}, signal);
  }

  /** Follows redirects. Another origin gets no credential. */
  async #follow(
    first: URL,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<Answer> {
    let url = first;
    for (let redirects = 0; redirects <= mostRedirects; redirects += 1) {
      const own = url.origin === this.#base.origin && this.#authorization !== undefined;
      const sent = own ? { ...headers, authorization: this.#authorization ?? "" } : headers;
      const answer = await this.#request(url, sent, signal);
      const { location } = answer.headers;
      if (answer.status < 300 || answer.status > 399 || location === undefined) return answer;
      answer.body.destroy();
      const next = URL.parse(location, url.href);
      const isSafer = next?.protocol === "https:" || this.#access.insecure;
      if (next === null || !/^https?:$/.test(next.protocol) || !isSafer)
        throw badAnswer(this.host, "redirects to a place without TLS");
      url = next;
    }
    throw badAnswer(this.host, "redirects in a circle");
  }

  #request(
    url: URL,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
    form?: string,
  ): Promise<Answer> {
    const isPlain = url.protocol === "http:";
    const send = isPlain ? httpRequest : httpsRequest;
    const agent = isPlain ? this.#agents["http:"] : this.#agents["https:"];
    return new Promise((resolve, reject) => {
      const asked = send(url, {
        agent,
        signal,
        method: form === undefined ? "GET" : "POST",
        headers: { "user-agent": "podnet", ...headers },
      });
      asked.setTimeout(idleMs, () =>
        asked.destroy(Object.assign(new Error("No bytes came"), { code: "ETIMEDOUT" })),
      );
      asked.on("error", reject);
      asked.on("response", (body) => {
        resolve({ status: body.statusCode ?? 0, headers: body.headers, body });
      });
      asked.end(form);
    });
  }

  [Symbol.dispose](): void {
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }
}

const basic = ({ user, password }: Password): string =>
  `Basic ${Buffer.from(`${user}:${password}`, "utf8").toString("base64")}`;

/** Whether it is worth to try once more what failed so. */
export const isPassing = (thrown: unknown): boolean =>
  thrown instanceof Error &&
  "code" in thrown &&
  /^(?:ECONNRESET|ECONNREFUSED|ECONNABORTED|EPIPE|ETIMEDOUT|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|HPE_|ERR_STREAM_PREMATURE_CLOSE)/.test(
    String(thrown.code),
  );

/**
 * All bytes of an answer. Throws `REGISTRY_FAILED` beyond `most`, and what the connection throws.
 */
export async function readAnswer(
  body: IncomingMessage,
  most: number,
  host: string,
): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of body as AsyncIterable<Uint8Array>) {
    bytes += part.length;
    if (bytes > most) {
      body.destroy();
      throw badAnswer(host, `answers with more than ${most} bytes where few belong`);
    }
    parts.push(part);
  }
  return Buffer.concat(parts);
}
