import path from "node:path";
import { PodnetError } from "../core/errors.ts";
import { type Access, parseServer, readSource, readToken, type Source } from "./access.ts";
import { fieldOf, textOf } from "./json.ts";

const field = "overlay.kubernetes.kubeconfig";

/** Ways to authenticate that need programs or state which a daemon does not have. */
const unsupported: Readonly<Record<string, string>> = {
  exec: "a command (exec)",
  "auth-provider": "an auth-provider",
  username: "a user name and password",
  as: "impersonation",
  "as-uid": "impersonation",
  "as-groups": "impersonation",
  "as-user-extra": "impersonation",
};

const invalid = (message: string, hint: string): PodnetError =>
  new PodnetError("CONFIG_INVALID", message, { field, hint });

/**
 * Reads a kubeconfig file's text: the cluster and the user of its current context. Paths in it are
 * relative to `directory`. Throws `CONFIG_INVALID`.
 */
export async function parseKubeconfig(text: string, directory: string): Promise<Access> {
  const { parse } = await import("yaml");
  let config: unknown;
  try {
    config = parse(text, { prettyErrors: false });
  } catch (cause) {
    throw new PodnetError("CONFIG_INVALID", "The kubeconfig is not YAML", {
      field,
      hint: "Write it with kubectl config, or copy it from the cluster's administrator",
      cause,
    });
  }
  const current = textOf(config, "current-context") ?? "";
  const context = named(config, "contexts", current, "context");
  const cluster = named(config, "clusters", textOf(context, "cluster") ?? "", "cluster");
  const user = named(config, "users", textOf(context, "user") ?? "", "user");
  refuseUnsupported(cluster, user);
  const source = (of: unknown, name: string): Source | undefined => sourceOf(of, name, directory);
  const ca = source(cluster, "certificate-authority");
  const cert = source(user, "client-certificate");
  const key = source(user, "client-key");
  const token = tokenOf(user, directory);
  if ((cert === undefined) !== (key === undefined))
    throw invalid(
      "The kubeconfig has one of client certificate and key alone",
      "Give both, client-certificate and client-key",
    );
  const serverName = textOf(cluster, "tls-server-name");
  return {
    server: parseServer(textOf(cluster, "server") ?? "", field),
    ...(serverName === undefined ? {} : { serverName }),
    insecure: fieldOf(cluster, "insecure-skip-tls-verify") === true,
    credentials: () =>
      withoutAbsent({
        ca: readSource(ca, "certificate of the API server's authority"),
        cert: readSource(cert, "client certificate"),
        key: readSource(key, "key of the client certificate"),
        token: readToken(token),
      }),
  };
}

/** An entry of one of the lists, by its name. */
function named(config: unknown, list: string, name: string, kind: string): unknown {
  const entries = fieldOf(config, list);
  const entry = Array.isArray(entries)
    ? entries.find((each) => name !== "" && textOf(each, "name") === name)
    : undefined;
  const found = fieldOf(entry, kind);
  if (found !== undefined && found !== null) return found;
  throw invalid(
    name === ""
      ? `The kubeconfig names no current ${kind}`
      : `The kubeconfig has no ${kind} "${name}"`,
    "See kubectl config view, with KUBECONFIG set to this file",
  );
}

function refuseUnsupported(cluster: unknown, user: unknown): void {
  if (isGiven(cluster, "proxy-url"))
    throw invalid(
      "The kubeconfig reaches the API server through a proxy",
      "Give podnetd a kubeconfig without proxy-url: it connects by itself",
    );
  for (const [name, means] of Object.entries(unsupported))
    if (isGiven(user, name))
      throw invalid(
        `The kubeconfig authenticates with ${means}, which podnetd cannot`,
        "Give podnetd a kubeconfig with a token, a tokenFile or a client certificate",
      );
}

/** Programs that write a kubeconfig leave fields empty that are not used. */
function isGiven(of: unknown, name: string): boolean {
  const value = fieldOf(of, name);
  return value !== undefined && value !== null && value !== "";
}

/** A file of the name, or data of the name in base 64, which wins. */
function sourceOf(of: unknown, name: string, directory: string): Source | undefined {
  const data = textOf(of, `${name}-data`) ?? "";
  if (data !== "") return { text: Buffer.from(data, "base64").toString("utf8") };
  const file = textOf(of, name) ?? "";
  return file === "" ? undefined : { path: path.resolve(directory, file) };
}

/** A token file wins over a token: it is the one that is replaced. */
function tokenOf(user: unknown, directory: string): Source | undefined {
  const file = textOf(user, "tokenFile") ?? "";
  if (file !== "") return { path: path.resolve(directory, file) };
  const token = textOf(user, "token") ?? "";
  return token === "" ? undefined : { text: token };
}

const withoutAbsent = (
  of: Readonly<Record<string, string | undefined>>,
): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(of).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
