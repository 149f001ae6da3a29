import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { toErrorInfo } from "../../api/codes.ts";
import {
  type WatchPodsRequest,
  type WatchPodsResponse,
  WatchPodsResponse_Kind as Kind,
  WatchPodsResponseSchema,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import type { PodName } from "../../core/names.ts";
import { validatePodRef } from "../../api/validate/exec.ts";
import { errorFromRecord } from "../events/error-record.ts";
import type { EventKind, EventRow } from "../events/store.ts";
import { denialView } from "../policies/denials.ts";
import { type ServiceParts, viewAnyPod } from "./context.ts";
import { spanView, time } from "./views.ts";

const kinds: Readonly<Record<EventKind, Kind>> = {
  created: Kind.CREATED,
  updated: Kind.UPDATED,
  step: Kind.STEP,
  deleted: Kind.DELETED,
  drift: Kind.DRIFT,
  attachment: Kind.ATTACHMENT,
  guard: Kind.GUARD,
  denial: Kind.DENIAL,
  service: Kind.SERVICE,
};

/** Pods as they are, unless the caller goes on from a cursor, and every change after. */
export async function* watchPods(
  request: WatchPodsRequest,
  parts: ServiceParts,
  signal: AbortSignal,
): AsyncGenerator<WatchPodsResponse> {
  const only =
    request.idOrName === "" ? undefined : parts.pods.findAny(validatePodRef(request.idOrName)).id;
  let after = request.after === undefined ? undefined : Number(request.after);
  if (after === undefined) {
    // No await between the list and the cursor: nothing falls between them.
    after = parts.journal.newest;
    const rows = parts.pods.listAny().filter(({ id }) => only === undefined || id === only);
    const at = { cursor: BigInt(after), time: time(parts.host.clock.now()) };
    const views = rows.map((row) => viewAnyPod(row, parts));
    for (const pod of views) yield response({ ...at, kind: Kind.SNAPSHOT, pod });
    yield response({ ...at, kind: Kind.SYNCED });
  }
  for await (const event of parts.journal.watch(after, signal)) {
    if (only === undefined || event.podId === only) yield sharedView(event, parts);
  }
  // The daemon's own end is reported to the caller; a caller that went away receives nothing.
  signal.throwIfAborted();
}

/** What has been sent of an event. The journal gives all who watch the event as one object. */
const views = new WeakMap<EventRow, WatchPodsResponse>();

/** One view for all who watch: a hundred clients do not read the pod a hundred times. */
function sharedView(event: EventRow, parts: ServiceParts): WatchPodsResponse {
  const before = views.get(event);
  if (before !== undefined) return before;
  const view = eventView(event, parts);
  views.set(event, view);
  return view;
}

function eventView(event: EventRow, parts: ServiceParts): WatchPodsResponse {
  const { span, error, text, drift, guard = [], denials = [] } = event.data;
  return response({
    cursor: BigInt(event.cursor),
    time: time(event.timeMs),
    kind: kinds[event.kind],
    ...podOf(event, parts),
    text,
    ...(span === undefined ? {} : { span: spanView(span) }),
    ...(error === undefined ? {} : { error: toErrorInfo(errorFromRecord(error)) }),
    ...(drift === undefined ? {} : { drift: { ...drift, found: [...drift.found] } }),
    guard: guard.map(({ interface: name, kind, packets, bytes }) => ({
      interface: name,
      kind,
      packets: BigInt(packets),
      bytes: BigInt(bytes),
    })),
    denials: denials.map(denialView),
  });
}

/**
 * The pod as it is when the event is first sent; of a deleted one only its name is left, and some
 * events are not about a pod.
 */
function podOf({ podId, podName = "" as PodName }: EventRow, parts: ServiceParts) {
  if (podId === undefined) return {};
  const row = parts.records.getAny(podId);
  return { pod: row === undefined ? { id: podId, name: podName } : viewAnyPod(row, parts) };
}

const response = (init: MessageInitShape<typeof WatchPodsResponseSchema>): WatchPodsResponse =>
  create(WatchPodsResponseSchema, init);
