import { validateSignal, validateSize } from "../../api/validate/exec.ts";
import { invalid } from "../../api/fields.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import type { FollowedProcess } from "../pods/process/followed-process.ts";
import { exitCodeOf } from "../pods/process/process-end.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { env, json, nothing, plain } from "./answers.ts";
import { containerStatus, containerView, heldProcess } from "./container-info.ts";
import { endOf, exitCodeOfExec, type KnownExecs } from "./known-execs.ts";
import { type Container, idOf, type KnownPods } from "./known-pods.ts";
import { work } from "./pod-calls.ts";
import { type Asking, type Call, parameter, type Route } from "./routes.ts";

const sigterm = 15;

/** Containers: each is its pod's main process. */
export const containerCalls = (
  parts: ServiceParts,
  known: KnownPods,
  execs: KnownExecs,
): readonly Route[] => [
  {
    method: "GET",
    path: "/container/info",
    role: "viewer",
    answer(call) {
      return json(containerInfo(known.container(parameter(call, "container")), parts));
    },
  },
  ...endCalls(parts, known),
  {
    method: "GET",
    path: "/exitcode",
    role: "operator",
    async answer(call) {
      const found = known.container(parameter(call, "container"));
      const id = parameter(call, "exec");
      const { signal } = call.context;
      const live = parts.pods.live(found.row.id);
      if (id === "") {
        if (live?.process !== undefined) await endOf(live.process.over, signal);
        return json(exitCodeOfContainer(found, parts));
      }
      return json(await exitCodeOfExec(execs.find(live, id, found.name), signal));
    },
  },
  {
    method: "POST",
    path: "/tty/resize",
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
    role: "operator",
    async answer(call) {
      const { row } = known.container(parameter(call, "container"));
      note(parts, call.context, `start ${row.name}`);
      await parts.pods.start(row.id, work(call.context));
      return nothing;
    },
  },
  {
    method: "POST",
    path: "/container/stop",
    role: "operator",
    async answer(call) {
      const { row } = known.container(parameter(call, "container"));
      note(parts, call.context, `stop ${row.name}`);
      await parts.pods.stop(row.id, { force: false });
      return env({}, 201);
    },
  },
  {
    method: "POST",
    path: "/container/kill",
    role: "operator",
    async answer(call) {
      const { row } = known.container(parameter(call, "container"));
      await kill(row, numberOf(call, "signal", sigterm), call.context, parts);
      return env({}, 201);
    },
  },
  {
    method: "POST",
    path: "/pod/kill",
    role: "operator",
    async answer(call) {
      const row = known.find(parameter(call, "podName"), (id) => `can not find pod ${id}`);
      const wanted = parameter(call, "container");
      const found = known
        .containers([row])
        .find(({ id, name }) => wanted === "" || id === wanted || name === wanted);
      if (found === undefined)
        throw new PodnetError("POD_NOT_FOUND", `can not find container ${printable(wanted)}`, {
          hint: "hyperctl list container shows those there are",
        });
      await kill(row, numberOf(call, "signal", sigterm), call.context, parts);
      return env({});
    },
  },
];

/** A container as hyperd shows it. */
export const containerInfo = (found: Container, { records }: Pick<ServiceParts, "records">) => ({
  podID: idOf(found.row),
  createdAt: Math.floor(found.row.createdMs / 1000),
  container: containerView(found),
  status: containerStatus(found, records.processes.get(found.row.id)),
});

/** Sends a signal to a container. */
export async function kill(
  row: PodRow,
  number: number,
  context: Asking,
  parts: ServiceParts,
): Promise<void> {
  const signal = validateSignal(number);
  const process = processOf(row, parts);
  note(parts, context, `signal ${signal} to the main process of ${row.name}`);
  await process.access.signal(signal);
}

/** Sets the size of a terminal: of a program with an id, or of a container. */
export async function resize(
  { row, name }: Container,
  { id, ...size }: { readonly id: string; readonly rows: number; readonly columns: number },
  parts: ServiceParts,
  execs: KnownExecs,
): Promise<void> {
  const { rows, columns } = validateSize(size);
  if (id === "") await processOf(row, parts).access.resize(rows, columns);
  else await execs.find(parts.pods.live(row.id), id, name).begun?.session.resize(rows, columns);
}

/** The process of a container that runs. Throws `WRONG_STATE` with hyperd's sentence. */
function processOf(row: PodRow, parts: ServiceParts): FollowedProcess {
  const process = heldProcess(row, parts);
  if (process !== undefined && process.end === undefined) return process;
  throw new PodnetError("WRONG_STATE", `container ${idOf(row)} is stopped`, {
    hint: "Start its pod",
  });
}

/**
 * The exit code of a container that has ended; 137 when it was killed with its machine. Throws
 * `WRONG_STATE` before.
 */
export function exitCodeOfContainer(
  { row, name }: Container,
  { records }: Pick<ServiceParts, "records">,
): number {
  const ended = records.processes.get(row.id);
  if (ended?.endedMs !== undefined) return exitCodeOf(ended.end);
  throw new PodnetError("WRONG_STATE", `container ${name} has not ended`, {
    hint: ended === undefined ? "Start its pod" : "It runs on: ask again",
  });
}

/** A parameter that is a number. hyperd takes what is none for the usual one. */
function numberOf(call: Call, name: string, usual: number): number {
  const text = parameter(call, name);
  if (text === "") return usual;
  if (/^\d{1,5}$/.test(text)) return Number(text);
  throw invalid(name, `"${printable(text)}" is not a number`, "Write digits alone");
}
