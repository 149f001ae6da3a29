import { dockerHub } from "../reference.ts";
import { Json } from "../archive/json.ts";

/** A user of a registry. */
export interface Password {
  readonly user: string;
  readonly password: string;
}

/** How podnet shows a registry who it is. */
export type Credential =
  | Password
  /** The registry itself takes it. */
  | { readonly registryToken: string }
  /** The server that gives tokens takes it, and gives others for it (OAuth's refresh token). */
  | { readonly identityToken: string };

/**
 * The credential for a registry in a `config.json` of docker or an `auth.json` of podman: `auths`
 * by registry, or by the beginning of a repository, the longest first (containers-auth.json(5)).
 * Undefined where there is none. Throws `IMAGE_UNREADABLE` for what is no such file.
 */
export function parseAuthFile(
  bytes: Uint8Array,
  registry: string,
  repository: string,
): Password | undefined {
  const auths = Json.of(bytes, "The file of credentials").get("auths");
  if (auths === undefined) return undefined;
  const path = `${registry}/${repository}`;
  const fitting = auths.entries
    .map(([key, entry]) => ({ key: plainKey(key), entry }))
    .filter(({ key }) => path === key || path.startsWith(`${key}/`))
    .toSorted((a, b) => b.key.length - a.key.length);
  for (const { entry } of fitting) {
    const [auth, username, password] = (["auth", "username", "password"] as const).map(
      (key) => entry.get(key)?.text,
    );
    const found = credentialFrom({ auth, username, password });
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The credential in docker's fields: `auth`, in base64, before the others. */
export function credentialFrom(given: {
  readonly auth: string | undefined;
  readonly username: string | undefined;
  readonly password: string | undefined;
}): Password | undefined {
  const { auth, username, password: plain } = given;
  const text = auth === undefined ? undefined : Buffer.from(auth, "base64").toString("utf8");
  const [user, password] =
    text === undefined ? [username, plain] : splitAt(text.replaceAll(/\0+$/g, ""));
  return user === undefined || user === "" || password === undefined
    ? undefined
    : { user, password };
}

function splitAt(text: string): [string?, string?] {
  const colon = text.indexOf(":");
  return colon < 1 ? [] : [text.slice(0, colon), text.slice(colon + 1)];
}

/** The registry of a key. Docker writes URLs, and Docker Hub's by a name of old. */
export function plainKey(key: string): string {
  const plain = key.replace(/^https?:\/\//, "").replace(/\/(?:v[12]\/?)?$/, "");
  return plain === "index.docker.io" || plain === "registry-1.docker.io" ? dockerHub : plain;
}
