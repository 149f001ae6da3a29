import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { keptLines, nextProcess } from "../api/process/process-stream.ts";
import type { MainProcessAccess } from "../../guest-init/channel/main-process.ts";
import type { FollowedProcess } from "../pods/process/followed-process.ts";
import { heldProcess } from "./container-info.ts";
import type { Container, KnownPods } from "./known-pods.ts";
import { type Asking, type OpenStream, parameter, type StreamRoute } from "./routes.ts";
import type { Written } from "./stdcopy.ts";

/** The input and output of containers. */
export const attachCalls = (parts: ServiceParts, known: KnownPods): readonly StreamRoute[] => [
  {
    method: "POST",
    path: "/attach",
    role: "operator",
    open(call) {
      const container = known.container(parameter(call, "container"));
      return Promise.resolve(attach(container, call.context, parts));
    },
  },
];

/**
 * A container's output from now on, and its end. One that has not been started is waited for, and
 * has all of its output read: `hyperctl run` attaches before it starts.
 */
export function attach({ row }: Container, context: Asking, parts: ServiceParts): OpenStream {
  const live = parts.pods.live(row.id);
  if (live === undefined)
    throw new PodnetError("WRONG_STATE", `The container of pod ${row.name} does not run`, {
      hint: "Start its pod",
    });
  note(parts, context, `attach to the main process of ${row.name}`);
  const signal = AbortSignal.any([context.signal, live.ended.signal]);
  const there = heldProcess(row, parts);
  // From this moment on, not from the first read on.
  const events = there?.attach(signal);
  const coming =
    there === undefined ? nextProcess(row.id, undefined, parts, signal) : Promise.resolve(there);
  const output = async function* (): AsyncGenerator<Written> {
    const next = events ?? (await coming)?.attach(signal);
    if (events === undefined && next !== undefined)
      for (const { stderr, data } of keptLines(row.id, { latestStart: true }, parts))
        yield { kind: stderr ? "stderr" : "stdout", data };
    if (next !== undefined) yield* written(next, signal);
  };
  return {
    terminal: row.plan.process?.terminal === true,
    output: output(),
    write: async (data) => unlessEnded(await coming, (access) => access.write(data)),
    closeInput: async () => unlessEnded(await coming, (access) => access.closeInput()),
  };
}

async function* written(
  events: ReturnType<FollowedProcess["attach"]>,
  signal: AbortSignal,
): AsyncGenerator<Written> {
  for await (const event of events) {
    if (event.kind === "end") return;
    yield event;
  }
  if (signal.aborted) return;
  throw new PodnetError("EVENTS_LOST", "The output was not read in time, or podnetd ends", {
    hint: "See GET /container/logs, and attach again",
  });
}

/** A process that has ended receives nothing; its end is on its way. */
async function unlessEnded(
  process: FollowedProcess | undefined,
  send: (access: MainProcessAccess) => Promise<void>,
): Promise<void> {
  try {
    if (process !== undefined) await send(process.access);
  } catch (thrown) {
    if (!isPodnetError(thrown, "AGENT_REFUSED", "WRONG_STATE")) throw thrown;
  }
}
