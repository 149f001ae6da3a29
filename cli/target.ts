import { readFileSync } from "node:fs";
import type { ConnectOptions } from "../api/client.ts";
import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";
import type { CommandTrace } from "./command-trace.ts";
import { usage } from "./usage.ts";

/** Options that say how to reach podnetd. */
export interface TargetOptions {
  readonly socket?: string;
  readonly url?: string;
}

type Environment = Readonly<Record<string, string | undefined>>;

function pem(env: Environment, variable: string): string {
  const file = env[variable] ?? "";
  if (file === "") {
    throw usage(`${variable} is not set`, "Name a PEM file: podnetd on TCP wants certificates");
  }
  try {
    return readFileSync(file, "utf8");
  } catch (cause) {
    const { code: errno = "unknown" } = cause as NodeJS.ErrnoException;
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" cannot be read (${errno})`, {
      field: variable,
      hint: "Name a PEM file you may read",
      details: { errno },
      cause,
    });
  }
}

/**
 * Where to connect: --socket, then --url, then PODNET_URL, then PODNET_SOCKET and the default. The
 * calls are parts of `trace`.
 */
export function targetOf(
  options: TargetOptions,
  env: Environment,
  trace?: Pick<CommandTrace, "traceparent">,
): ConnectOptions {
  const { traceparent } = trace ?? {};
  return { ...placeOf(options, env), ...(traceparent === undefined ? {} : { traceparent }) };
}

function placeOf(options: TargetOptions, env: Environment): ConnectOptions {
  if (options.socket !== undefined) {
    if (options.url === undefined) return { socket: options.socket };
    throw usage("--socket and --url are both given", "Give one of them");
  }
  const url = options.url ?? env["PODNET_URL"] ?? "";
  if (url === "") {
    const socket = env["PODNET_SOCKET"] ?? "";
    return socket === "" ? {} : { socket };
  }
  if (!URL.canParse(url) || new URL(url).protocol !== "https:") {
    throw usage(`"${printable(url)}" is no address of podnetd`, "Write https://HOST:PORT");
  }
  const tls = {
    ca: pem(env, "PODNET_TLS_CA"),
    cert: pem(env, "PODNET_TLS_CERT"),
    key: pem(env, "PODNET_TLS_KEY"),
  };
  return { url, tls };
}
