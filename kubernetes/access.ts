import { readFileSync } from "node:fs";
import { isLoopback, isIp, parseIp } from "../core/address.ts";
import { PodnetError } from "../core/errors.ts";
import { kubernetesError } from "./errors.ts";

/** What a request proves itself and checks its server with. PEM; all of it may be absent. */
export interface Credentials {
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly token?: string;
}

/** How an API server is reached, and as whom. */
export interface Access {
  /** Its paths are below this URL's. */
  readonly server: URL;
  /** The name in the server's certificate, if it is not the one in `server`. */
  readonly serverName?: string;
  /** Trusts any server. For trying things out: whoever answers gets the token. */
  readonly insecure: boolean;
  /**
   * Reads the credentials. Called for each request, because tokens and certificates are replaced
   * while podnetd runs: a token in a pod lasts an hour. Throws `KUBERNETES_DENIED`.
   */
  readonly credentials: () => Credentials;
}

/**
 * Reads the URL of an API server. Throws `CONFIG_INVALID`. Over HTTP without TLS everyone on the
 * way would see the token, so that it may only lead to this host's own addresses.
 */
export function parseServer(text: string, field: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const usable =
    url !== undefined &&
    url.username + url.password + url.search + url.hash === "" &&
    (url.protocol === "https:" || (url.protocol === "http:" && isOwnHost(url.hostname)));
  if (usable) return url;
  throw new PodnetError("CONFIG_INVALID", `"${text}" is no URL of an API server`, {
    field,
    hint: "Write https://HOST:PORT; http:// only with an address of this host, such as 127.0.0.1",
  });
}

function isOwnHost(hostname: string): boolean {
  const host = hostname.replace(/^\[|\]$/g, "");
  return host === "localhost" || (isIp(host) && isLoopback(parseIp(host)));
}

/** A text that stands in the configuration, or the path of the file that has it. */
export type Source = { readonly text: string } | { readonly path: string };

/** Larger files are not read. */
const mostBytes = 1 << 20;

/** Reads a source. Throws `KUBERNETES_DENIED`. */
export function readSource(source: Source | undefined, what: string): string | undefined {
  if (source === undefined) return undefined;
  if ("text" in source) return source.text;
  try {
    const bytes = readFileSync(source.path);
    if (bytes.length > mostBytes) throw new RangeError(`has ${bytes.length} bytes`);
    return bytes.toString("utf8");
  } catch (cause) {
    throw kubernetesError("KUBERNETES_DENIED", `The ${what} "${source.path}" cannot be read`, {
      hint: "Check that the file is there, and its permissions",
      details: { path: source.path },
      cause,
    });
  }
}

/** Reads a token: one line. Throws `KUBERNETES_DENIED`. */
export function readToken(source: Source | undefined): string | undefined {
  const token = readSource(source, "token file")?.trim();
  if (token === undefined || /^[\u0021-\u007e]+$/.test(token)) return token;
  throw kubernetesError(
    "KUBERNETES_DENIED",
    "The token for Kubernetes' API server is not a token",
    {
      hint: "Write the token alone, on one line",
    },
  );
}
