import { decodeUtf8 } from "../../core/utf8.ts";
import { decodeBase64 } from "./base64.ts";
import { asObject, countAt, type JsonObject, objectAt, textAt } from "./json.ts";
import { cniError, refusal } from "./refusal.ts";

/**
 * The exchange between `podnet-cni` and podnetd: one HTTP/1.1 request on a unix socket, one answer,
 * and the end. OpenShift SDN's plugins send nearly the same to `POST /`, with the host's end of a
 * veth they made.
 */
export const exchangePath = "/cni/v1";
export const openshiftPath = "/";
export const defaultSocket = "/run/podnet/cni.sock";

/** Bytes of standard input: far above what any runtime sends. */
export const stdinLimit = 1024 * 1024;
/** Bytes of the variables CNI_*, names and all. */
export const environmentLimit = 128 * 1024;
/** Bytes of a request's body: all of both, in base64 and with escapes. */
export const bodyLimit = 2 * (stdinLimit + environmentLimit);

export interface Exchange {
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: Uint8Array;
  /** OpenShift SDN: the host's end of a veth that is there already. */
  readonly hostVeth?: string;
}

/** The plugin's result: it writes `stdout` and exits with `exit`. */
export interface Outcome {
  readonly exit: number;
  readonly stdout: string;
}

/** A request's body; `config` is standard input in base64. */
export const renderExchange = (
  env: Readonly<Record<string, string>>,
  config: string,
  more: Readonly<Record<string, number | string>> = {},
): string => JSON.stringify({ env, config, ...more });

/** Reads the body of a request. Throws with CNI's error 6. */
export function parseExchange(body: Uint8Array): Exchange {
  let value: unknown;
  try {
    value = JSON.parse(decodeUtf8(body));
  } catch (cause) {
    throw refuse("The request is not JSON", "body", cause);
  }
  const object = asObject(value, "body");
  const hostVeth = textAt(object, "hostVeth", "hostVeth");
  return {
    env: parseEnvironment(objectAt(object, "env", "env")),
    stdin: parseStdin(textAt(object, "config", "config") ?? ""),
    ...(hostVeth === undefined ? {} : { hostVeth }),
  };
}

function parseEnvironment(object: JsonObject): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(object).map(([name, value]) => {
      if (typeof value !== "string") throw refuse("A variable is not a text", "env");
      return [name, value];
    }),
  );
}

function parseStdin(text: string): Uint8Array {
  const bytes = decodeBase64(text);
  if (bytes === undefined) throw refuse("The configuration is not base64", "config");
  if (bytes.length > stdinLimit)
    throw refuse(`The configuration has more than ${stdinLimit} bytes`, "config");
  return bytes;
}

const refuse = (message: string, field: string, cause?: unknown) =>
  refusal(message, {
    cni: cniError.decode,
    field,
    hint: 'Send {"env":{"CNI_COMMAND":…},"config":"BASE64 OF STANDARD INPUT"}',
    cause,
  });

/** The answer's body. */
export const renderOutcome = ({ exit, stdout }: Outcome): string =>
  JSON.stringify({ exit, stdout });

/** Reads the answer's body. Throws with CNI's error 6. */
export function parseOutcome(body: Uint8Array): Outcome {
  let value: unknown;
  try {
    value = JSON.parse(decodeUtf8(body));
  } catch (cause) {
    throw refuseAnswer(cause);
  }
  const object = asObject(value, "answer");
  const exit = countAt(object, "exit", "exit", 0, 255);
  if (exit === undefined) throw refuseAnswer(undefined);
  return { exit, stdout: textAt(object, "stdout", "stdout") ?? "" };
}

const refuseAnswer = (cause: unknown) =>
  refusal("The answer is none of podnetd's", {
    cni: cniError.decode,
    field: "answer",
    hint: "Check which program listens on the socket; it must be podnetd of the same version",
    cause,
  });
