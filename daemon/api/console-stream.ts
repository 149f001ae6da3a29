import { create } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import {
  type ConsoleRequest,
  type ConsoleResponse,
  ConsoleResponseSchema,
  type OpenConsoleRequest,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Keyboard, RunningVm } from "../../hypervisor/driver.ts";
import type { LivePod } from "../pods/lifecycle/live-pod.ts";
import { machineKindOf } from "../pods/machine/machine-of.ts";
import type { ServiceParts } from "./context.ts";
import { peerKey, peerText } from "../listeners/peer.ts";

/**
 * The kept part of a console, in one answer, then the output that follows. The guest's bytes travel
 * unchanged.
 */
export async function* streamConsole(
  request: ConsoleRequest,
  parts: ServiceParts,
  signal: AbortSignal,
): AsyncGenerator<ConsoleResponse> {
  const { vm } = machineOf(request, parts);
  if (request.noFollow) yield response(cut(vm.consoleTail(), request));
  else yield* follow(vm, request, signal);
}

/** A console for a caller who types: one for each console. */
export async function* openConsole(
  requests: AsyncIterable<OpenConsoleRequest>,
  parts: ServiceParts,
  { signal, values }: HandlerContext,
): AsyncGenerator<ConsoleResponse> {
  const incoming = requests[Symbol.asyncIterator]();
  const first = await incoming.next();
  if (first.done === true || first.value.input.case !== "open") throw outOfTurn("not ");
  const request = first.value.input.value;
  if (request.noFollow) {
    throw new PodnetError("INVALID_ARGUMENT", "A client that types on a console also follows it", {
      field: "open.no_follow",
      hint: "Use Console to read the kept output",
    });
  }
  const { vm, activity } = machineOf(request, parts);
  using _use = activity.begin();
  using keyboard = vm.takeKeyboard(peerText(values.get(peerKey)));
  const stop = new AbortController();
  const ended = AbortSignal.any([signal, stop.signal]);
  pump(incoming, keyboard, ended).catch((thrown: unknown) => stop.abort(thrown));
  try {
    yield* follow(vm, request, ended);
    if (stop.signal.aborted && !signal.aborted) throw stop.signal.reason;
  } finally {
    stop.abort();
  }
}

/**
 * Types the caller's input, as fast as the guest accepts it. A caller that ended its input may go
 * on reading.
 */
async function pump(
  requests: AsyncIterator<OpenConsoleRequest>,
  keyboard: Keyboard,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const next = await requests.next();
    if (next.done === true) return keyboard[Symbol.dispose]();
    const { input } = next.value;
    if (input.case !== "data") throw outOfTurn("sent ");
    await keyboard.type(input.value, signal);
  }
}

const outOfTurn = (how: "not " | "sent "): PodnetError =>
  new PodnetError(
    "INVALID_ARGUMENT",
    how === "not "
      ? "The first message of a console is not its opening"
      : "A console is opened once only",
    { field: "open", hint: "Send `open` first, and then `data`" },
  );

function machineOf(
  { idOrName }: ConsoleRequest,
  { pods }: ServiceParts,
): Pick<LivePod, "activity"> & { readonly vm: RunningVm } {
  const { vm, plan, activity } = pods.withMachine(validatePodRef(idOrName));
  // Also of what is kept: an empty answer would say that the guest printed nothing.
  if (!machineKindOf(plan.vm).hasConsole) throw noConsole();
  if (vm !== undefined) return { vm, activity };
  throw new PodnetError("WRONG_STATE", "The pod has no machine", {
    hint: `Start it: podnet start ${idOrName}`,
  });
}

/** The console of an attached machine belongs to its owner's QEMU: podnet has no bytes of it. */
const noConsole = (): PodnetError =>
  new PodnetError("UNSUPPORTED", "podnet has no console of a machine it did not start", {
    hint: "The program that started the VM has its console",
  });

const cut = (kept: Uint8Array, { tailBytes }: ConsoleRequest): Uint8Array =>
  tailBytes === 0 ? kept : kept.subarray(Math.max(0, kept.length - tailBytes));

async function* follow(
  vm: RunningVm,
  request: ConsoleRequest,
  signal: AbortSignal,
): AsyncGenerator<ConsoleResponse> {
  let isKept = true;
  for await (const chunk of vm.console(signal)) {
    yield response(isKept ? cut(chunk, request) : chunk);
    isKept = false;
  }
}

const response = (data: Uint8Array): ConsoleResponse =>
  create(ConsoleResponseSchema, { data: Uint8Array.from(data) });
