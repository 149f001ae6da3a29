import { create } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import { assertNever } from "../../../core/brand.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import {
  type ExecRequest,
  type ExecResize,
  type ExecResponse,
  ExecResponseSchema,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import {
  validateExec,
  validatePodRef,
  validateSignal,
  validateSize,
} from "../../../api/validate/exec.ts";
import type { ExecEvent, ExecSession } from "../../../guest-init/channel/guest.ts";
import { OutputPiece } from "../../../guest-init/channel/output-memory.ts";
import type { Begun } from "../../pods/execs/execs.ts";
import { type LivePod, requireGuest } from "../../pods/lifecycle/live-pod.ts";
import { guestOf } from "../../pods/guest/guest-of.ts";
import type { ServiceParts } from "../context.ts";
import { headOfBytes, ownMessagesKey } from "../http/own-messages.ts";

/** Runs a program in a guest: requests become its input, its output the answers. */
export async function* streamExec(
  requests: AsyncIterable<ExecRequest>,
  parts: Pick<ServiceParts, "pods">,
  { signal, values }: Pick<HandlerContext, "signal" | "values">,
): AsyncGenerator<ExecResponse> {
  const incoming = requests[Symbol.asyncIterator]();
  const first = await incoming.next();
  if (first.done === true || first.value.input.case !== "start") {
    throw new PodnetError("INVALID_ARGUMENT", "The first message of an exec is not its start", {
      field: "start",
      hint: "Send `start` with the pod and the program first",
    });
  }
  const start = first.value.input.value;
  const wanted = validateExec(start);
  const live = parts.pods.running(validatePodRef(start.idOrName));
  requireAgent(live);
  const stop = new AbortController();
  const ended = AbortSignal.any([signal, stop.signal]);
  const { exec, session } = await live.execs.attach(requireGuest(live), wanted, ended);
  try {
    yield create(ExecResponseSchema, {
      output: { case: "started", value: { podId: live.plan.podId, execId: exec.id } },
    });
    // A program may wait in silence for the very input that fails: the failure has to end it.
    pump(incoming, session).catch((thrown: unknown) => stop.abort(thrown));
    const own = values.get(ownMessagesKey);
    if (own !== undefined) session.lend?.();
    for await (const event of eventsOf({ exec, session })) {
      const piece = event.kind === "exit" ? undefined : OutputPiece.of(event.data);
      if (event.kind === "exit" || piece === undefined || own === undefined) yield eventView(event);
      else await own.send(piece.behind(headOf(event)), () => piece.free());
    }
  } catch (thrown) {
    throw stop.signal.aborted ? stop.signal.reason : thrown;
  } finally {
    // Of a caller that went away; otherwise it is known already how the program ended.
    exec.failed(callerGone());
  }
}

/** What an attached program writes, and its end, which the program's record learns here. */
export async function* eventsOf({ exec, session }: Begun): AsyncGenerator<ExecEvent> {
  try {
    for await (const event of session.events) {
      if (event.kind === "exit") exec.exited(event.code);
      yield event;
    }
  } catch (thrown) {
    exec.failed(thrown);
    throw thrown;
  } finally {
    exec.failed(callerGone());
  }
}

const callerGone = (): PodnetError =>
  new PodnetError("CANCELLED", "The program's caller went away");

/** Refuses a pod in which nothing can be run. Throws `UNSUPPORTED`. */
export function requireAgent({ plan }: LivePod): void {
  if (guestOf(plan).hasAgent) return;
  throw new PodnetError("UNSUPPORTED", "The pod's guest has no agent to run it", {
    hint: `It has no agent that podnet supports: podnet get ${plan.name}`,
  });
}

/** Passes on the caller's messages; their end is the end of the input, too. */
async function pump(requests: AsyncIterator<ExecRequest>, session: ExecSession): Promise<void> {
  for (;;) {
    const next = await requests.next();
    if (next.done === true) return session.closeInput();
    const { input } = next.value;
    switch (input.case) {
      case "stdin":
        await session.write(input.value);
        break;
      case "closeStdin":
        await session.closeInput();
        break;
      case "resize":
        await unlessEnded(resize(session, input.value));
        break;
      case "signal":
        await unlessEnded(session.signal(validateSignal(input.value.signal)));
        break;
      default:
        throw new PodnetError("INVALID_ARGUMENT", "An exec can be started once only", {
          field: "start",
          hint: "Begin another exec for another program",
        });
    }
  }
}

function resize(session: ExecSession, size: ExecResize): Promise<void> {
  const { rows, columns } = validateSize(size);
  return session.resize(rows, columns);
}

/** A program that has ended cannot receive anything; its exit, which is on its way, says so. */
async function unlessEnded(reported: Promise<void>): Promise<void> {
  try {
    await reported;
  } catch (thrown) {
    if (!isPodnetError(thrown, "AGENT_REFUSED")) throw thrown;
  }
}

const { stdout, stderr } = ExecResponseSchema.field;

const headOf = ({ kind, data }: Exclude<ExecEvent, { readonly kind: "exit" }>): Uint8Array =>
  headOfBytes((kind === "stdout" ? stdout : stderr).number, data.length);

function eventView(event: ExecEvent): ExecResponse {
  switch (event.kind) {
    case "stdout":
      return response({ case: "stdout", value: own(event.data) });
    case "stderr":
      return response({ case: "stderr", value: own(event.data) });
    case "exit":
      return create(ExecResponseSchema, { output: { case: "exit", value: { code: event.code } } });
    default:
      return assertNever(event);
  }
}

/** The channel's bytes come in buffers that nothing shares with other threads. */
const own = (data: Uint8Array): Uint8Array<ArrayBuffer> => data as Uint8Array<ArrayBuffer>;

const response = (output: ExecResponse["output"]): ExecResponse =>
  create(ExecResponseSchema, { output });
