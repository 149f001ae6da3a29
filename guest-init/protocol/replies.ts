import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { decodeUtf8, encodeUtf8 } from "../../core/utf8.ts";
import { joinBytes, noBytes, readU32, u32Bytes } from "./bytes.ts";
import { apiVersion } from "./codes.ts";
import { Fields, asString, encodeJson, given, malformed } from "./fields.ts";

/** ACK of GETVERSION. */
export const encodeVersion = (version: number = apiVersion): Uint8Array => u32Bytes(version);

/** Throws `AGENT_PROTOCOL` unless it is exactly four bytes. */
export function parseVersion(payload: Uint8Array): number {
  if (payload.length !== 4)
    throw malformed(`A version of ${payload.length} bytes arrived where 4 are due`);
  return readU32(payload, 0);
}

/** Payload of NEXT: bytes the agent has just consumed. */
export function parseNext(payload: Uint8Array): number {
  if (payload.length !== 4) throw malformed(`NEXT carries ${payload.length} bytes where 4 are due`);
  return readU32(payload, 0);
}

/** Why a command was refused, as ERROR of the extension's commands carries it. */
export interface Failure {
  readonly message: string;
  /** Key of the request at fault, e.g. `interfaces[0].mac`. */
  readonly field?: string;
  /** Name of the system's error, e.g. `EEXIST`. */
  readonly errno?: string;
}

/** ERROR to a command of the extension: JSON. */
export const encodeFailure = (failure: Failure): Uint8Array =>
  encodeJson({
    message: failure.message,
    ...given("field", failure.field),
    ...given("errno", failure.errno),
  });

/** ERROR to any other command: text ended by NUL, as KILLCONTAINER's; empty for none. */
export const encodeErrorText = (text: string): Uint8Array =>
  text === "" ? noBytes : joinBytes([encodeUtf8(text), new Uint8Array(1)]);

/** Longest reason kept from a guest, characters. */
const reasonLimit = 400;
const clean = (text: string): string =>
  (text.length > 80 ? text.slice(0, reasonLimit).match(/.{1,80}/gsu) : [text])
    ?.map(printable)
    .join("") ?? "";

/**
 * Reads either form; never throws, since it explains another error. Text is escaped and bounded.
 */
export function parseFailure(payload: Uint8Array): Failure {
  const nul = payload.indexOf(0);
  const text = decodeUtf8(payload.subarray(0, Math.min(nul < 0 ? payload.length : nul, 4096)));
  try {
    const fields = new Fields(JSON.parse(text));
    return {
      message: clean(fields.required("message", asString)),
      ...given(
        "field",
        fields.optional("field", (v, p) => clean(asString(v, p))),
      ),
      ...given(
        "errno",
        fields.optional("errno", (v, p) => clean(asString(v, p))),
      ),
    };
  } catch {
    return { message: clean(text) };
  }
}

/** The failure as an error of the host: `AGENT_REFUSED`. */
export function refusal(what: string, payload: Uint8Array): PodnetError {
  const { message, field, errno } = parseFailure(payload);
  return new PodnetError(
    "AGENT_REFUSED",
    message === "" ? `The guest refused ${what}` : `The guest refused ${what}: ${message}`,
    {
      ...given("field", field),
      ...(errno === undefined ? {} : { details: { errno } }),
    },
  );
}
