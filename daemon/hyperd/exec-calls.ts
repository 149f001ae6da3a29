import { create } from "@bufbuild/protobuf";
import * as z from "zod";
import { ExecStartSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateExec } from "../../api/validate/exec.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { eventsOf, requireAgent } from "../api/execs/exec-stream.ts";
import type { Begun } from "../pods/execs/execs.ts";
import { type LivePod, requireGuest } from "../pods/lifecycle/live-pod.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { json } from "./answers.ts";
import type { CreatedExec, KnownExecs, PlacedExec } from "./known-execs.ts";
import type { Container, ExecPlace } from "./containers/container.ts";
import { type KnownPods } from "./known-pods.ts";
import { readGo } from "./requests/go-json.ts";
import {
  type Asking,
  type Call,
  type OpenStream,
  parameter,
  type Route,
  saysYes,
  type StreamRoute,
} from "./routes.ts";
import type { Written } from "./stdcopy.ts";

interface ExecCalls {
  readonly routes: readonly Route[];
  readonly streams: readonly StreamRoute[];
}

/** Programs in containers, which are created and then started, and programs in machines. */
export const execCalls = (parts: ServiceParts, known: KnownPods, execs: KnownExecs): ExecCalls => ({
  routes: [
    {
      method: "POST",
      path: "/exec/create",
      parameters: ["container", "command", "tty"],
      role: "operator",
      answer(call) {
        const found = known.container(parameter(call, "container"));
        return json(createExec(found, asked(call), parts, execs).id, 201);
      },
    },
  ],
  streams: [
    {
      method: "POST",
      path: "/exec/start",
      parameters: ["container", "exec"],
      role: "operator",
      async open(call) {
        const found = known.container(parameter(call, "container"));
        return streamOf(
          await startExec(found, parameter(call, "exec"), call.context, parts, execs),
        );
      },
    },
    {
      method: "POST",
      path: "/execvm",
      parameters: ["pod", "command", "tty"],
      role: "operator",
      open: async (call) =>
        streamOf(
          await execInVm(known.find(parameter(call, "pod")), asked(call), call.context, parts),
        ),
    },
  ],
});

/** What is to run. */
interface Program {
  readonly args: readonly string[];
  readonly terminal: boolean;
}

const asked = (call: Call): Program => ({
  args: readGo(z.array(z.string()), parameter(call, "command"), "command"),
  terminal: saysYes(call, "tty"),
});

export function createExec(
  { id, name, row, place, course }: Container,
  program: Program,
  { pods }: Pick<ServiceParts, "pods">,
  execs: KnownExecs,
): CreatedExec {
  const spec = execSpec(program, place);
  const live = pods.running(row.id);
  requireAgent(live);
  if (place.container !== undefined && course.kind !== "running")
    throw new PodnetError("WRONG_STATE", `container ${printable(name)} is not running`, {
      hint: "Start it",
    });
  return execs.create(live, id, spec);
}

/** Starts a program that was created, once. */
export async function startExec(
  found: Container,
  id: string,
  context: Asking,
  parts: ServiceParts,
  execs: KnownExecs,
): Promise<Begun> {
  const { row } = found;
  const live = parts.pods.running(row.id);
  const created = execs.find(live, id, found);
  if (created.begun !== undefined)
    throw new PodnetError("WRONG_STATE", `exec ${created.id} has been started already`, {
      hint: "Create another",
    });
  note(parts, context, `exec ${row.name}`);
  const begun = await begin(live, created.spec, context);
  created.begun = begun;
  return begun;
}

/** Runs a program in a pod's machine, as root. */
export async function execInVm(
  row: PodRow,
  program: Program,
  context: Asking,
  parts: ServiceParts,
): Promise<Begun> {
  const spec = execSpec(program, {});
  note(parts, context, `exec ${row.name}`);
  return await begin(parts.pods.running(row.id), spec, context);
}

/** A program as a container's own process runs, by its user and with its variables. */
function execSpec({ args, terminal }: Program, place: Partial<ExecPlace>): PlacedExec {
  const { env = [], workdir = "", user = "", container } = place;
  const spec = validateExec(
    create(ExecStartSchema, {
      args: [...args],
      env: Object.fromEntries(env.map((each) => [each.env, each.value])),
      workdir,
      user,
      terminal,
    }),
  );
  return container === undefined ? spec : { ...spec, container };
}

async function begin(live: LivePod, spec: PlacedExec, { signal }: Asking): Promise<Begun> {
  requireAgent(live);
  return await live.execs.attach(requireGuest(live), spec, signal);
}

export function streamOf(begun: Begun): OpenStream {
  const { session, exec } = begun;
  return {
    terminal: exec.spec.terminal,
    output: outputOf(begun),
    write: (data) => session.write(data),
    closeInput: () => session.closeInput(),
  };
}

async function* outputOf(begun: Begun): AsyncGenerator<Written> {
  for await (const event of eventsOf(begun)) if (event.kind !== "exit") yield event;
}
