import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import type { MainProcessAccess } from "../../guest-init/channel/main-process.ts";
import type { Attachable, Container } from "./containers/container.ts";
import { type KnownPods } from "./known-pods.ts";
import { type Asking, type OpenStream, parameter, type StreamRoute } from "./routes.ts";
import type { Written } from "./stdcopy.ts";

/** The input and output of containers. */
export const attachCalls = (parts: ServiceParts, known: KnownPods): readonly StreamRoute[] => [
  {
    method: "POST",
    path: "/attach",
    parameters: ["container"],
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
export function attach(container: Container, context: Asking, parts: ServiceParts): OpenStream {
  const { row } = container;
  const live = parts.pods.live(row.id);
  if (live === undefined)
    throw new PodnetError("WRONG_STATE", `The container of pod ${row.name} does not run`, {
      hint: "Start its pod",
    });
  note(parts, context, `attach to container ${printable(container.name)} of ${row.name}`);
  const signal = AbortSignal.any([context.signal, live.ended.signal]);
  const there = container.held();
  // From this moment on, not from the first read on.
  const events = there?.attach(signal);
  const coming = there === undefined ? container.next(signal) : Promise.resolve(there);
  const output = async function* (): AsyncGenerator<Written> {
    const next = events ?? (await coming)?.attach(signal);
    if (events === undefined && next !== undefined)
      for (const { stderr, data } of container.kept({ latestStart: true }))
        yield { kind: stderr ? "stderr" : "stdout", data };
    if (next !== undefined) yield* written(next, signal);
  };
  return {
    terminal: container.facts.terminal,
    output: output(),
    write: async (data) => unlessEnded(await coming, (access) => access.write(data)),
    closeInput: async () => unlessEnded(await coming, (access) => access.closeInput()),
  };
}

async function* written(
  events: ReturnType<Attachable["attach"]>,
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
  process: Attachable | undefined,
  send: (access: MainProcessAccess) => Promise<void>,
): Promise<void> {
  try {
    if (process === undefined) return;
    await process.reached;
    await send(process.access);
  } catch (thrown) {
    if (!isPodnetError(thrown, "AGENT_REFUSED", "WRONG_STATE")) throw thrown;
  }
}
