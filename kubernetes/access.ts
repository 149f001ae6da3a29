import { isLoopback, isIp, parseIp } from "../core/address.ts";
import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import { readRegular } from "../linux/files/regular-file.ts";
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
  // (A password in it is not shown.)
  const said = text.includes("@") ? "The address with a user's name" : `"${printable(text)}"`;
  throw new PodnetError("CONFIG_INVALID", `${said} is no URL of an API server`, {
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

/**
 * Reads a source. Throws `KUBERNETES_DENIED`, also if it is empty, as a file may be that is being
 * written: without an authority, a server would be trusted whom any public authority knows.
 */
export function readSource(source: Source | undefined, what: string): string | undefined {
  if (source === undefined) return undefined;
  const text = "text" in source ? source.text : readFile(source.path, what);
  if (text.trim() !== "") return text;
  throw kubernetesError("KUBERNETES_DENIED", `The ${what} is empty`, {
    hint: "Write it anew; the kubeconfig says where it is",
    details: "path" in source ? { path: source.path } : {},
  });
}

function readFile(path: string, what: string): string {
  try {
    // (Kubernetes' files in a pod are links.)
    return readRegular(path, mostBytes, { follow: true }).toString("utf8");
  } catch (cause) {
    throw kubernetesError("KUBERNETES_DENIED", `The ${what} "${path}" cannot be read`, {
      hint: "Check that the file is there, and its permissions",
      details: { path },
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
