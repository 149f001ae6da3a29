import { create } from "@bufbuild/protobuf";
import { z } from "zod";
import { ExecStartSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { type ExecSpec, validateExec } from "../../api/validate/exec.ts";
import { PodnetError } from "../../core/errors.ts";
import { note, type ServiceParts } from "../api/context.ts";
import { eventsOf, requireAgent } from "../api/execs/exec-stream.ts";
import type { Begun } from "../pods/execs/execs.ts";
import { type LivePod, requireGuest } from "../pods/lifecycle/live-pod.ts";
import type { ProcessPlan } from "../pods/process/plan-process.ts";
import { json } from "./answers.ts";
import type { KnownExecs } from "./known-execs.ts";
import type { KnownPods } from "./known-pods.ts";
import { readGo } from "./requests/go-json.ts";
import {
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
      role: "operator",
      answer(call) {
        const { row } = known.container(parameter(call, "container"));
        const spec = execSpec(call, row.plan.process);
        const live = parts.pods.running(row.id);
        requireAgent(live);
        return json(execs.create(live, spec).id, 201);
      },
    },
  ],
  streams: [
    {
      method: "POST",
      path: "/exec/start",
      role: "operator",
      async open(call) {
        const container = parameter(call, "container");
        const { row } = known.container(container);
        const live = parts.pods.running(row.id);
        const created = execs.find(live, parameter(call, "exec"), container);
        if (created.begun !== undefined)
          throw new PodnetError("WRONG_STATE", `exec ${created.id} has been started already`, {
            hint: "Create another",
          });
        note(parts, call.context, `exec ${row.name}`);
        const begun = await begin(live, created.spec, call);
        created.begun = begun;
        return stream(begun);
      },
    },
    {
      method: "POST",
      path: "/execvm",
      role: "operator",
      async open(call) {
        const row = known.find(parameter(call, "pod"));
        const spec = execSpec(call, undefined);
        note(parts, call.context, `exec ${row.name}`);
        return stream(await begin(parts.pods.running(row.id), spec, call));
      },
    },
  ],
});

/** A program as a container's own process runs, by its user and with its variables. */
function execSpec(call: Call, process: ProcessPlan | undefined): ExecSpec {
  const args = readGo(z.array(z.string()), parameter(call, "command"), "command");
  const { env = [], workdir = "", user = "" } = process ?? {};
  return validateExec(
    create(ExecStartSchema, {
      args,
      env: Object.fromEntries(env.map((each) => [each.env, each.value])),
      workdir,
      user,
      terminal: saysYes(call, "tty"),
    }),
  );
}

async function begin(live: LivePod, spec: ExecSpec, { context }: Call): Promise<Begun> {
  requireAgent(live);
  return await live.execs.attach(requireGuest(live), spec, context.signal);
}

function stream(begun: Begun): OpenStream {
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
