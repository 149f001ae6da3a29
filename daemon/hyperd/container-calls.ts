import { validateSignal, validateSize } from "../../api/validate/exec.ts";
import { invalid } from "../../api/fields.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { exitCodeOf } from "../pods/process/process-end.ts";
import { done, env, json, nothing, plain } from "./answers.ts";
import { containerInfo } from "./containers/container-info.ts";
import type { Container } from "./containers/container.ts";
import { endOf, exitCodeOfExec, type KnownExecs } from "./known-execs.ts";
import type { KnownPods } from "./known-pods.ts";
import { containerName } from "./requests/container-name.ts";
import { type Asking, type Call, parameter, type Route } from "./routes.ts";

const sigterm = 15;

/** The life of containers. */
export const containerCalls = (
  parts: ServiceParts,
  known: KnownPods,
  execs: KnownExecs,
): readonly Route[] => [
  {
    method: "GET",
    path: "/container/info",
    parameters: ["container"],
    role: "viewer",
    answer: (call) => json(containerInfo(known.container(parameter(call, "container")))),
  },
  ...endCalls(parts, known),
  {
    method: "GET",
    path: "/exitcode",
    parameters: ["container", "exec"],
    role: "operator",
    async answer(call) {
      const found = known.container(parameter(call, "container"));
      const id = parameter(call, "exec");
      const { signal } = call.context;
      if (id === "") {
        const over = found.over();
        if (over !== undefined) await endOf(over, signal);
        return json(exitCodeOfContainer(found));
      }
      const live = parts.pods.live(found.row.id);
      return json(await exitCodeOfExec(execs.find(live, id, found), signal));
    },
  },
  {
    method: "POST",
    path: "/tty/resize",
    parameters: ["container", "exec", "h", "w"],
    role: "operator",
    async answer(call) {
      const found = known.container(parameter(call, "container"));
      const size = { rows: numberOf(call, "h", 0), columns: numberOf(call, "w", 0) };
      await resize(found, { id: parameter(call, "exec"), ...size }, parts, execs);
      return plain("");
    },
  },
];

const endCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  {
    method: "POST",
    path: "/container/start",
    parameters: ["container"],
    role: "operator",
    async answer(call) {
      const found = known.container(parameter(call, "container"));
      note(parts, call.context, `start ${shownOf(found)}`);
      await found.start(call.context);
      return nothing;
    },
  },
  {
    method: "POST",
    path: "/container/stop",
    parameters: ["container"],
    role: "operator",
    async answer(call) {
      const found = known.container(parameter(call, "container"));
      note(parts, call.context, `stop ${shownOf(found)}`);
      await found.stop(undefined, call.context.signal);
      return env({}, 201);
    },
  },
  {
    method: "POST",
    path: "/container/rename",
    parameters: ["oldName", "newName"],
    role: "operator",
    async answer(call) {
      const name = parameter(call, "newName");
      await renameContainer(known.container(parameter(call, "oldName")), name, call.context, parts);
      return done(name);
    },
  },
  {
    method: "POST",
    path: "/container/kill",
    parameters: ["container", "signal"],
    role: "operator",
    async answer(call) {
      const found = known.container(parameter(call, "container"));
      await kill(found, numberOf(call, "signal", sigterm), call.context, parts);
      return env({}, 201);
    },
  },
  {
    method: "POST",
    path: "/pod/kill",
    parameters: ["podName", "container", "signal"],
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podName"), (id) => `can not find pod ${id}`);
      const wanted = parameter(call, "container");
      const found = known
        .containers([row])
        .filter(({ id, name }) => wanted === "" || id === wanted || name === wanted);
      if (found.length === 0)
        throw new PodnetError(
          "CONTAINER_NOT_FOUND",
          `can not find container ${printable(wanted)}`,
          {
            hint: "hyperctl list container shows those there are",
          },
        );
      for (const each of found)
        await kill(each, numberOf(call, "signal", sigterm), call.context, parts);
      return env({});
    },
  },
];

/** Gives a container another name, which only callers of hyperd's API know it by. */
export async function renameContainer(
  found: Container,
  name: string,
  context: Asking,
  parts: ServiceParts,
): Promise<void> {
  // docker's names begin with a slash, which hyperd shows and takes.
  const next = containerName(name.replace(/^\//, ""), "newName");
  if (next === "")
    throw invalid("newName", "The container's new name is empty", "Give its new name");
  note(parts, context, `rename ${shownOf(found)} to ${next}`);
  await found.rename(next);
}

/** Sends a signal to a container. */
export async function kill(
  found: Container,
  number: number,
  context: Asking,
  parts: ServiceParts,
): Promise<void> {
  const signal = validateSignal(number);
  note(parts, context, `signal ${signal} to ${shownOf(found)}`);
  await found.kill(signal);
}

/** A container by its pod, for the log. */
export const shownOf = ({ row, name }: Container): string =>
  `container ${printable(name)} of ${row.name}`;

/** Sets the size of a terminal: of a program with an id, or of a container. */
export async function resize(
  found: Container,
  { id, ...size }: { readonly id: string; readonly rows: number; readonly columns: number },
  parts: ServiceParts,
  execs: KnownExecs,
): Promise<void> {
  const { rows, columns } = validateSize(size);
  if (id !== "")
    await execs.find(parts.pods.live(found.row.id), id, found).begun?.session.resize(rows, columns);
  else if (found.course.kind !== "running")
    throw new PodnetError("WRONG_STATE", `container ${printable(found.name)} is stopped`, {
      hint: "Start its pod",
    });
  else await found.held()?.access.resize(rows, columns);
}

/**
 * The exit code of a container that has ended; 137 when it was killed with its machine. Throws
 * `WRONG_STATE` before.
 */
export function exitCodeOfContainer({ course, name }: Container): number {
  if (course.kind === "ended") return exitCodeOf(course.end);
  throw new PodnetError("WRONG_STATE", `container ${printable(name)} has not ended`, {
    hint: course.kind === "pending" ? "Start its pod" : "It runs on: ask again",
  });
}

/** A parameter that is a number. hyperd takes what is none for the usual one. */
function numberOf(call: Call, name: string, usual: number): number {
  const text = parameter(call, name);
  if (text === "") return usual;
  if (/^\d{1,5}$/.test(text)) return Number(text);
  throw invalid(name, `"${printable(text)}" is not a number`, "Write digits alone");
}
