import { randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";

const isSame = (a: string, b: string): boolean => {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
};

const cookie = "podnet-page";

/**
 * Who may see the page: whoever opens it first by its token, which is valid once. The browser then
 * has a cookie that scripts cannot read and that no other site's requests carry.
 */
export class Access {
  /** In the page's address, until it has been opened. */
  readonly token = randomBytes(24).toString("base64url");
  /**
   * Where the page is. Browsers send a cookie to all ports of an address, such as those that pods
   * have published: this one goes to servers that know the path alone.
   */
  readonly path = `/${randomBytes(12).toString("base64url")}/`;
  readonly #session = randomBytes(24).toString("base64url");
  readonly #isOwn: (host: string) => boolean;
  #opened = false;

  /** `isOwn`: whether the page is served under a value of the Host header. */
  constructor(isOwn: (host: string) => boolean) {
    this.#isOwn = isOwn;
  }

  /** The cookie for a request that opens the page by its token; undefined for any other token. */
  open(token: string): string | undefined {
    if (this.#opened || !isSame(token, this.token)) return undefined;
    this.#opened = true;
    return `${cookie}=${this.#session}; HttpOnly; SameSite=Strict; Path=${this.path}`;
  }

  /**
   * Why a request is refused, if it is. Another Host is a name that an attacker made an address of
   * this machine; another origin is a page of another site.
   */
  refusal(request: IncomingMessage): string | undefined {
    const { host = "", origin, cookie: cookies = "" } = request.headers;
    if (!this.#isOwn(host)) return "This is not the address of the page";
    if (origin !== undefined && origin !== `http://${host}`) return "Another site sent the request";
    const site = request.headers["sec-fetch-site"];
    if (site !== undefined && site !== "same-origin" && site !== "none")
      return "Another site sent the request";
    const own = cookies.split(/;\s*/).some((each) => isSame(each, `${cookie}=${this.#session}`));
    return own ? undefined : "Open the address that podnet ui has printed";
  }

  /** Whether a request comes to the page's own address; its cookie does not matter. */
  isAddressed({ headers: { host = "" } }: IncomingMessage): boolean {
    return this.#isOwn(host);
  }
}
