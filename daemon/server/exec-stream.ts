import { create } from "@bufbuild/protobuf";
import { assertNever } from "../../core/brand.ts";
import { PodnetError } from "../../core/errors.ts";
import {
  type ExecRequest,
  type ExecResponse,
  ExecResponseSchema,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateExec, validatePodRef } from "../../api/validate-exec.ts";
import type { ExecEvent, ExecSession } from "../../guest-init/channel/guest.ts";
import type { ServiceParts } from "./context.ts";

const SIGHUP = 1;

/** Runs a program in a guest: requests become its input, its output the answers. */
export async function* streamExec(
  requests: AsyncIterable<ExecRequest>,
  parts: ServiceParts,
  signal: AbortSignal,
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
  if (live.guest === undefined) {
    throw new PodnetError("AGENT_DISCONNECTED", "The pod's agent is not connected", {
      hint: `podnetd tries to reach it; see why: podnet get ${live.plan.name}`,
    });
  }
  const session = await live.guest.exec(wanted, signal);
  yield create(ExecResponseSchema, {
    output: { case: "started", value: { podId: live.plan.podId } },
  });
  let exited = false;
  let inputFailure: unknown;
  const pumped = pump(incoming, session).catch((thrown: unknown) => {
    inputFailure = thrown;
  });
  try {
    for await (const event of session.events) {
      exited = event.kind === "exit";
      yield eventView(event);
      if (inputFailure !== undefined && !exited) throw inputFailure;
    }
  } finally {
    // The caller has gone: so does what it started, as when a terminal is closed.
    if (!exited) await session.signal(SIGHUP).catch(() => {});
    void pumped;
  }
}

/** Passes on what the caller sends; who has no more to say has no more input to give either. */
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
        await session.resize(input.value.rows, input.value.columns);
        break;
      case "signal":
        await session.signal(checkedSignal(input.value.signal));
        break;
      default:
        throw new PodnetError("INVALID_ARGUMENT", "An exec can be started once only", {
          field: "start",
        });
    }
  }
}

function checkedSignal(signal: number): number {
  if (signal >= 1 && signal <= 64) return signal;
  throw new PodnetError("INVALID_ARGUMENT", `There is no signal ${signal}`, {
    field: "signal.signal",
    hint: "Linux signals are numbered 1 to 64",
  });
}

function eventView(event: ExecEvent): ExecResponse {
  switch (event.kind) {
    case "stdout":
      return response({ case: "stdout", value: Uint8Array.from(event.data) });
    case "stderr":
      return response({ case: "stderr", value: Uint8Array.from(event.data) });
    case "exit":
      return create(ExecResponseSchema, { output: { case: "exit", value: { code: event.code } } });
    default:
      return assertNever(event);
  }
}

const response = (output: ExecResponse["output"]): ExecResponse =>
  create(ExecResponseSchema, { output });
