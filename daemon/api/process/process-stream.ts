import { setTimeout as delay } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate, timestampMs } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  type AttachProcessRequest,
  type AttachProcessResponse,
  AttachProcessResponseSchema,
  type LogsRequest,
  type LogsResponse,
  LogsResponseSchema,
  type PodService,
} from "../../../api/gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef, validateSignal, validateSize } from "../../../api/validate/exec.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import type { FollowedProcess } from "../../pods/process/followed-process.ts";
import type { LogLine } from "../../pods/process/log-lines.ts";
import { exitCodeOf } from "../../pods/process/process-end.ts";
import { logDirectory, readLog } from "../../pods/process/process-log.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";
import { note, type ServiceParts } from "../context.ts";

type Methods = Pick<ServiceImpl<typeof PodService>, "logs" | "attachProcess">;
type Answer = MessageInitShape<typeof AttachProcessResponseSchema>;
export type Output = Extract<LogLine, { readonly kind: "output" }>;

/** What the main process of a pod writes, and the way to it. */
export const podProcess = (parts: ServiceParts): Methods => ({
  logs: (request, { signal }) => streamLogs(request, parts, signal),
  attachProcess: (requests, context) => streamProcess(requests, parts, context),
});

function requireProcess(row: PodRow): void {
  if (row.plan.process !== undefined) return;
  throw new PodnetError("UNSUPPORTED", `Pod "${row.name}" has no main process`, {
    field: "id_or_name",
    hint: `See its console: podnet logs --console ${row.name}`,
  });
}

/** The kept lines that were asked for: of the latest start, since a time, the last of them. */
export function keptLines(
  id: PodId,
  request: Pick<LogsRequest, "latestStart" | "since" | "tailLines">,
  { host }: ServiceParts,
): Output[] {
  const all = readLog(logDirectory(host.processes.logsDir, id));
  const lines = request.latestStart ? latestStart(all) : all;
  const since = request.since === undefined ? 0 : timestampMs(request.since);
  return chosenLines(lines, since, request.tailLines);
}

/** Lines of output since a time, and of these the last ones. */
export function chosenLines(
  lines: readonly LogLine[],
  sinceMs: number,
  tailLines: number | undefined,
): Output[] {
  const wanted = lines.filter(
    (line): line is Output => line.kind === "output" && Date.parse(line.time) >= sinceMs,
  );
  return tailLines === undefined ? wanted : lastLines(wanted, tailLines);
}

function latestStart(lines: readonly LogLine[]): readonly LogLine[] {
  const run = lines.findLast(({ kind }) => kind === "mark");
  if (run?.kind !== "mark") return lines;
  const first = lines.findIndex((line) => line.kind === "mark" && line.run === run.run);
  return lines.slice(first);
}

/** The last lines: a line ends where its text has a line feed. */
function lastLines(lines: readonly Output[], count: number): Output[] {
  if (count === 0) return [];
  let left = count;
  for (let i = lines.length - 1; i > 0; i--) {
    if (lines[i - 1]?.data.at(-1) === 10 && --left === 0) return lines.slice(i);
  }
  return [...lines];
}

async function* streamLogs(
  request: LogsRequest,
  parts: ServiceParts,
  signal: AbortSignal,
): AsyncGenerator<LogsResponse> {
  const row = parts.pods.find(validatePodRef(request.idOrName));
  requireProcess(row);
  const { id } = row;
  // Attached before the log is read: the log has what comes meanwhile, which is then left out.
  let followed = parts.pods.live(id)?.process;
  let next = request.follow ? followed?.attach(signal) : undefined;
  let kept = keptLines(id, request, parts);
  for (;;) {
    for (const line of kept) yield logView(line, new Date(line.time));
    if (!request.follow) return;
    for await (const event of next ?? []) {
      if (event.kind === "end") break;
      const stderr = event.kind === "stderr";
      yield logView({ stderr, data: event.data }, new Date(parts.host.clock.now()));
    }
    if (signal.aborted) return;
    followed = await nextProcess(id, followed, parts, signal);
    if (followed === undefined) return;
    next = followed.attach(signal);
    kept = keptLines(id, { ...request, latestStart: true, tailLines: undefined }, parts);
  }
}

/** Waits for another start of the main process; undefined when the pod is deleted. */
export async function nextProcess(
  id: PodId,
  last: FollowedProcess | undefined,
  { pods, journal, records }: ServiceParts,
  signal: AbortSignal,
): Promise<FollowedProcess | undefined> {
  const after = journal.newest;
  const found = (): FollowedProcess | undefined => {
    const now = pods.live(id)?.process;
    return now === last ? undefined : now;
  };
  if (found() !== undefined) return found();
  for await (const { podId, kind } of journal.watch(after, signal)) {
    if (podId !== id) continue;
    if (kind === "deleted") return undefined;
    // The row says that it runs a moment before this process holds it.
    for (let i = 0; i < 50 && records.getUsable(id)?.state === "running"; i++) {
      if (found() !== undefined) return found();
      await delay(20);
    }
  }
  return undefined;
}

const logView = ({ stderr, data }: Pick<Output, "stderr" | "data">, time: Date): LogsResponse =>
  create(LogsResponseSchema, {
    time: timestampFromDate(time),
    output: { case: stderr ? "stderr" : "stdout", value: own(data) },
  });

/** The data has a buffer of its own. */
const own = (data: Uint8Array): Uint8Array<ArrayBuffer> => data as Uint8Array<ArrayBuffer>;

async function* streamProcess(
  requests: AsyncIterable<AttachProcessRequest>,
  parts: ServiceParts,
  { signal, ...context }: HandlerContext,
): AsyncGenerator<AttachProcessResponse> {
  const incoming = requests[Symbol.asyncIterator]();
  const first = await incoming.next();
  if (first.done === true || first.value.input.case !== "start")
    throw new PodnetError("INVALID_ARGUMENT", "The first message is not the start", {
      field: "start",
      hint: "Send `start` with the pod first",
    });
  const { idOrName, fromStart } = first.value.input.value;
  const row = parts.pods.find(validatePodRef(idOrName));
  requireProcess(row);
  note(parts, context, `attach to the main process of ${idOrName}`);
  const response = (output: Answer["output"] & {}): AttachProcessResponse =>
    create(AttachProcessResponseSchema, { output });
  const live = parts.pods.live(row.id);
  const followed = live?.process;
  using _use = live?.activity.begin();
  const stop = new AbortController();
  const ended = AbortSignal.any([signal, stop.signal]);
  const events = followed?.attach(ended);
  const before = fromStart ? keptLines(row.id, { latestStart: true }, parts) : [];
  yield response({ case: "started", value: { podId: row.id } });
  for (const { stderr, data } of before)
    yield response({ case: stderr ? "stderr" : "stdout", value: own(data) });
  const exit = (code: number): AttachProcessResponse => response({ case: "exit", value: { code } });
  if (events === undefined || followed === undefined) {
    const process = parts.records.processes.get(row.id);
    if (!fromStart || process?.endedMs === undefined) throw noProcess(row);
    yield exit(exitCodeOf(process.end));
    return;
  }
  pump(incoming, followed).catch((thrown: unknown) => stop.abort(thrown));
  for await (const event of events) {
    if (event.kind === "end") {
      yield exit(exitCodeOf(event.end));
      return;
    }
    yield response({ case: event.kind, value: own(event.data) });
  }
  if (stop.signal.aborted && !signal.aborted) throw stop.signal.reason;
  if (!signal.aborted)
    throw new PodnetError("EVENTS_LOST", "The output was not read in time, or podnetd ends", {
      hint: "See podnet logs, and attach again",
    });
}

const noProcess = ({ name }: PodRow): PodnetError =>
  new PodnetError("WRONG_STATE", `The main process of pod "${name}" does not run`, {
    hint: `See what it wrote: podnet logs ${name}`,
  });

/** Passes on the caller's messages. */
async function pump(
  requests: AsyncIterator<AttachProcessRequest>,
  followed: FollowedProcess,
): Promise<void> {
  for (;;) {
    const next = await requests.next();
    if (next.done === true || followed.end !== undefined) return;
    const { input } = next.value;
    try {
      switch (input.case) {
        case "stdin":
          await followed.access.write(input.value);
          break;
        case "closeStdin":
          await followed.access.closeInput();
          break;
        case "resize": {
          const { rows, columns } = validateSize(input.value);
          await followed.access.resize(rows, columns);
          break;
        }
        case "signal":
          await followed.access.signal(validateSignal(input.value.signal));
          break;
        default:
          throw new PodnetError("INVALID_ARGUMENT", "The start was sent already", {
            field: "start",
            hint: "Attach once more for another pod",
          });
      }
    } catch (thrown) {
      // A process that has ended receives nothing; its end is on its way.
      if (!isPodnetError(thrown, "AGENT_REFUSED", "WRONG_STATE")) throw thrown;
    }
  }
}
