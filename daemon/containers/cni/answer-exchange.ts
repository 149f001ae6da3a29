import { assertNever } from "../../../core/brand.ts";
import { type PodnetError, toPodnetError } from "../../../core/errors.ts";
import { type IfName, parseIfName } from "../../../core/names.ts";
import { cniNumber, renderError } from "../../../cni/protocol/error.ts";
import { parseExchange } from "../../../cni/protocol/exchange.ts";
import { read } from "../../../cni/protocol/json.ts";
import { parseRequest } from "../../../cni/protocol/request-read.ts";
import type { CniRequest } from "../../../cni/protocol/request.ts";
import { renderResult } from "../../../cni/protocol/result-write.ts";
import { versionAnswer } from "../../../cni/protocol/version.ts";
import type { Attachments } from "../attachments.ts";
import { attachmentRequest } from "./attachment-request.ts";

export interface Exchanging {
  readonly attachments: Pick<Attachments, "add" | "delete" | "check" | "collect" | "status">;
  /**
   * Notified of each request when it is over: its command, how it ended: 0, or CNI's number of the
   * error, and the error.
   */
  done(command: string, code: number, ms: number, error?: PodnetError): void;
}

/** The outcome of a request: the plugin's output, or an error. */
export type Answer =
  | { readonly ok: true; readonly stdout: string }
  | { readonly ok: false; readonly error: PodnetError; readonly stdout: string };

/**
 * Reads a request's body and carries it out. Never throws. `signal` aborts when the runtime has
 * stopped waiting for the answer.
 */
export async function answerExchange(
  body: Uint8Array,
  { attachments, done }: Exchanging,
  signal: AbortSignal,
): Promise<Answer> {
  const began = performance.now();
  let command = "none";
  const over = (code: number, error?: PodnetError): void =>
    done(command, code, performance.now() - began, error);
  try {
    const exchange = parseExchange(body);
    const request = parseRequest(exchange.env, exchange.stdin);
    ({ command } = request);
    const hostVeth =
      exchange.hostVeth === undefined
        ? undefined
        : read(exchange.hostVeth, "hostVeth", parseIfName);
    const stdout = await act(request, hostVeth, attachments, signal);
    over(0);
    return { ok: true, stdout };
  } catch (thrown) {
    const error = toPodnetError(thrown);
    over(cniNumber(error), error);
    return { ok: false, error, stdout: renderError(error) };
  }
}

/**
 * Carries a request out and returns the plugin's output: empty, where CNI has the plugin print
 * nothing.
 */
async function act(
  request: CniRequest,
  hostVeth: IfName | undefined,
  attachments: Exchanging["attachments"],
  signal: AbortSignal,
): Promise<string> {
  switch (request.command) {
    case "ADD": {
      const result = await attachments.add(attachmentRequest(request, hostVeth), signal);
      return renderResult(result, request.config.version);
    }
    case "DEL":
      await attachments.delete(request);
      return "";
    case "CHECK":
      await attachments.check(request, signal);
      return "";
    case "GC":
      await attachments.collect(request);
      return "";
    case "STATUS":
      attachments.status(request);
      return "";
    case "VERSION":
      return versionAnswer();
    default:
      return assertNever(request);
  }
}
