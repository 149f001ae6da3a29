import { PodnetError } from "../../core/errors.ts";
import { extensionCodes } from "../protocol/configure.ts";
import { encodeErrorText, encodeFailure } from "../protocol/replies.ts";
import { SysError } from "./sys.ts";

/** A command handler's result: the payload of its ACK, and what happens once that is sent. */
export interface Reply {
  readonly payload?: Uint8Array;
  readonly after?: () => void;
}

export type Handler = (payload: Uint8Array) => Reply | Promise<Reply>;

export const done: Reply = {};

/** Text for people of anything thrown. */
export const reason = (thrown: unknown): string =>
  thrown instanceof Error ? thrown.message : String(thrown);

function errnoOf(thrown: unknown): string | undefined {
  if (thrown instanceof SysError) return thrown.code;
  if (!(thrown instanceof PodnetError)) return undefined;
  const errno = thrown.details["errno"];
  return typeof errno === "string" ? errno : undefined;
}

/** Payload of ERROR: JSON for the extension's commands, text ended by NUL for hyperstart's. */
export function failurePayload(code: number, thrown: unknown): Uint8Array {
  if (code < extensionCodes.hello) return encodeErrorText(reason(thrown));
  const errno = errnoOf(thrown);
  const field = thrown instanceof PodnetError ? thrown.field : undefined;
  return encodeFailure({
    message: reason(thrown),
    ...(field === undefined ? {} : { field }),
    ...(errno === undefined ? {} : { errno }),
  });
}
