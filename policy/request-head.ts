import { type Ip, isIp, parseIp } from "../core/address.ts";
import { canonicalName, type DomainName } from "./domain.ts";
import { Gathered, latin1 } from "./gathered.ts";

/** Why the head of a request is refused. */
export type HeadRefusal =
  /** The connection does not begin as HTTP/1 does. */
  | "not-http"
  /** It breaks a rule of HTTP, or could be read in two ways. */
  | "malformed"
  | "too-long"
  /** HTTP/2 without TLS: each of its streams names a host of its own. */
  | "http2"
  /** It asks for a tunnel, or for another protocol than WebSocket. */
  | "tunnel"
  /** `Host` and the request's target name different places. */
  | "two-hosts"
  /** The name is not that of a host. */
  | "bad-name";

/** A request's head, as far as it matters where it goes. */
interface RequestHead {
  /** The host that is named; null when it is an address, or there is none. */
  readonly name: DomainName | null;
  /** The address that stands where a host's name does. */
  readonly address?: Ip;
  /** It asks to go on as WebSocket. */
  readonly upgrade: boolean;
  /** How many of the bytes that came are the head. */
  readonly length: number;
}

export type HeadRead =
  | { readonly kind: "more" }
  | { readonly kind: "head"; readonly head: RequestHead }
  | { readonly kind: "refused"; readonly reason: HeadRefusal };

/** Longest head that is read, bytes: nginx takes as many, most servers fewer. */
export const longestHead = 32_768;
const mostFields = 200;

const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** RFC 9112 section 3. A target has no controls, blanks or characters beyond ASCII. */
const requestLine = /^([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([\x21-\x7e]+) HTTP\/(1\.[01]|2\.0)$/;
/** What a connection begins with whose first line may yet become a request's. */
const beginning = /^(?:$|[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}(?: |$))/;
const beginningBytes = 33;
/** No controls but tabs (RFC 9110 section 5.5). */
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/;
/** `host`, `host:port`, `[IPv6]:port`. Nothing of a user. */
const authority = /^(\[[0-9A-Fa-f:.]+\]|[^\s[\]:@/?#]+)(?::[0-9]{0,5})?$/;

/**
 * Reads where an HTTP/1 request goes from the beginning of its connection, which may come in any
 * pieces. Whatever two readers could understand differently is refused. Pure.
 */
export class RequestHeadReader {
  readonly #start = new Gathered();
  /** Up to where no head ends. */
  #searched = 0;
  #result: HeadRead = { kind: "more" };

  /** All bytes that came so far, with those behind the head. */
  get start(): Uint8Array {
    return this.#start.bytes;
  }

  /** Takes the next piece, of any length. What has been decided stays. */
  take(piece: Uint8Array): HeadRead {
    if (this.#result.kind !== "more") return this.#result;
    this.#start.add(piece);
    this.#result = this.#read(this.#start.bytes.subarray(0, longestHead));
    return this.#result;
  }

  #read(bytes: Uint8Array): HeadRead {
    const begun = this.#searched >= beginningBytes;
    if (!begun && !beginning.test(latin1(bytes.subarray(0, beginningBytes))))
      return refused("not-http");
    const end = endOfHead(bytes, this.#searched);
    this.#searched = bytes.length;
    if (end === "malformed") return refused(end);
    if (end !== undefined) return readHead(latin1(bytes.subarray(0, end)));
    return bytes.length < longestHead ? { kind: "more" } : refused("too-long");
  }
}

const refused = (reason: HeadRefusal): HeadRead => ({ kind: "refused", reason });

/** Behind the first empty line. A line that ends by a line feed alone, some do not take for one. */
function endOfHead(bytes: Uint8Array, from: number): number | "malformed" | undefined {
  for (let at = bytes.indexOf(10, from); at >= 0; at = bytes.indexOf(10, at + 1)) {
    if (bytes[at - 1] !== 13) return "malformed";
    if (bytes[at - 2] === 10) return at + 1;
  }
  return undefined;
}

function readHead(text: string): HeadRead {
  const [first = "", ...lines] = text.slice(0, -4).split("\r\n");
  const [, method = "", target = "", version = ""] = requestLine.exec(first) ?? [];
  if (version === "2.0") return refused(method === "PRI" && target === "*" ? "http2" : "malformed");
  if (version === "") return refused("malformed");
  if (method === "CONNECT") return refused("tunnel");
  const fields = readFields(lines);
  if (fields === undefined) return refused("malformed");
  const hosts = fields.get("host") ?? [];
  // HTTP/1.1 asks for one, and HTTP/1.0 knows none (RFC 9112 section 3.2).
  if (hosts.length > 1 || (hosts.length === 0 && version === "1.1")) return refused("malformed");
  const named = targetHost(target);
  if (named === "none") return refused("malformed");
  const upgrade = (fields.get("upgrade") ?? []).map((value) => value.toLowerCase());
  if (upgrade.some((protocol) => protocol !== "websocket")) return refused("tunnel");
  const [host] = hosts;
  if (named !== undefined && host !== undefined && withoutPort(named) !== withoutPort(host))
    return refused("two-hosts");
  const place = placeOf(named ?? host);
  return place === undefined
    ? refused("bad-name")
    : { kind: "head", head: { ...place, upgrade: upgrade.length > 0, length: text.length } };
}

/** All values by name in lower case; undefined when a line is none, or there are too many. */
function readFields(lines: readonly string[]): ReadonlyMap<string, readonly string[]> | undefined {
  if (lines.length > mostFields) return undefined;
  const fields = new Map<string, string[]>();
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(0, colon)).toLowerCase();
    const value = line.slice(colon + 1).replaceAll(/^[\t ]+|[\t ]+$/g, "");
    // No line continues another one, and no blank stands before the colon (RFC 9112 section 5).
    if (!token.test(name) || !fieldValue.test(value)) return undefined;
    fields.set(name, [...(fields.get(name) ?? []), value]);
  }
  return fields;
}

/**
 * The authority of a target in absolute form, as a client writes it to its proxy; undefined for a
 * path, `none` for what is neither (RFC 9112 section 3.2).
 */
function targetHost(target: string): string | undefined {
  if (target.startsWith("/") || target === "*") return undefined;
  return /^http:\/\/([^/?#]+)(?:[/?#]|$)/i.exec(target)?.[1] ?? "none";
}

const withoutPort = (text: string): string =>
  (authority.exec(text)?.[1] ?? text).toLowerCase().replace(/\.$/, "");

/** The name or the address of an authority; undefined when it is neither. */
function placeOf(text: string | undefined): Pick<RequestHead, "name" | "address"> | undefined {
  if (text === undefined) return { name: null };
  const host = authority.exec(text)?.[1];
  if (host === undefined) return undefined;
  const address = host.replace(/^\[(.*)\]$/, "$1");
  if (isIp(address)) return { name: null, address: parseIp(address) };
  const name = canonicalName(host);
  return name === undefined ? undefined : { name };
}

/**
 * The head with which the server ends the connection after its answer: a second request on it could
 * name another host (RFC 9112 section 9.6).
 */
export function closingHead(head: Uint8Array): Uint8Array {
  const [first = "", ...lines] = latin1(head).slice(0, -4).split("\r\n");
  const kept = lines.filter((line) => !/^(?:connection|keep-alive|proxy-connection):/i.test(line));
  const text = [first, ...kept, "Connection: close", "", ""].join("\r\n");
  return Uint8Array.from(text, (c) => c.charCodeAt(0));
}
