import type { ServiceImpl } from "@connectrpc/connect";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { note, type ServiceParts } from "../api/context.ts";
import type { ExecEvent } from "../../guest-init/channel/guest.ts";
import { requireProgram, startProgram } from "./containers/exec-sync.ts";
import type { FollowedContainer } from "./containers/followed-container.ts";
import type { SandboxContainers } from "./containers/sandbox-containers.ts";
import type { RuntimeService } from "./gen/cri_pb.ts";
import { isReady, type Sandboxes } from "./sandboxes.ts";
import { connectToSandbox } from "./streaming/connect-port.ts";
import { requirePort } from "./streaming/port-forward.ts";
import type { StreamedProgram, WantedStreams } from "./streaming/remote-command.ts";
import type { StreamingServer } from "./streaming/streaming-server.ts";

/** Calls whose answer is a URL, where a client then streams. */
export function streamCalls(
  parts: ServiceParts,
  sandboxes: Sandboxes,
  containers: SandboxContainers,
  streams: Pick<StreamingServer, "urlFor">,
): Pick<ServiceImpl<typeof RuntimeService>, "exec" | "attach" | "portForward"> {
  return {
    exec({ containerId, cmd, ...wanted }, context) {
      note(parts, context, `stream a program in container ${printable(containerId)}`);
      requireProgram(cmd);
      requireStreams(wanted);
      containers.running(containerId);
      const start = async (gone: AbortSignal): Promise<StreamedProgram> => {
        const { row, live } = containers.running(containerId);
        const program = await startProgram(live, row, { args: cmd, terminal: wanted.tty }, gone);
        // On a terminal an end is a key, and the program need not expect it.
        if (!wanted.stdin && wanted.tty) return withoutEnd(program);
        return program;
      };
      return { url: streams.urlFor({ kind: "exec", wanted, start }) };
    },

    attach({ containerId, ...wanted }, context) {
      note(parts, context, `attach to container ${printable(containerId)}`);
      requireStreams(wanted);
      containers.running(containerId);
      const start = (gone: AbortSignal): Promise<StreamedProgram> => {
        const { row } = containers.running(containerId);
        const closes = row.plan.stdinOnce === true && wanted.stdin;
        return Promise.resolve(attached(containers.followed(containerId), closes, gone));
      };
      return { url: streams.urlFor({ kind: "attach", wanted, start }) };
    },

    portForward({ podSandboxId, port: ports }, context) {
      const { id } = sandboxes.find(podSandboxId);
      note(parts, context, `forward ports into sandbox ${id}`);
      for (const port of ports) requirePort(port);
      if (!isReady(sandboxes.find(id))) throw notReady(id);
      const connect = (port: number, gone: AbortSignal) => {
        const sandbox = sandboxes.find(id);
        if (!isReady(sandbox)) throw notReady(id);
        return connectToSandbox(sandbox, parts.pods.live(id), port, gone);
      };
      return { url: streams.urlFor({ kind: "portforward", ports, connect }) };
    },
  };
}

const notReady = (id: string): PodnetError =>
  new PodnetError("WRONG_STATE", `Sandbox ${id} is not ready`, {
    field: "pod_sandbox_id",
    hint: "Run another sandbox",
  });

/** As Kubernetes' interface has it. Throws `INVALID_ARGUMENT`. */
function requireStreams({ stdin, stdout, stderr, tty }: WantedStreams): void {
  if (!stdin && !stdout && !stderr)
    throw new PodnetError("INVALID_ARGUMENT", "No stream is asked for", {
      field: "stdin",
      hint: "Ask for stdin, stdout or stderr",
    });
  if (tty && stderr)
    throw new PodnetError("INVALID_ARGUMENT", "On a terminal output and errors are one", {
      field: "stderr",
      hint: "Leave stderr out, or tty",
    });
}

const withoutEnd = (program: StreamedProgram): StreamedProgram => ({
  events: program.events,
  write: (data) => program.write(data),
  closeInput: () => Promise.resolve(),
  resize: (rows, columns) => program.resize(rows, columns),
});

/**
 * The first process of a container. A client that goes leaves its input open, unless it `closes`.
 */
function attached(
  followed: FollowedContainer,
  closes: boolean,
  gone: AbortSignal,
): StreamedProgram {
  const events = followed.attach(gone);
  const close = async (): Promise<void> => {
    if (closes) await followed.access.closeInput();
  };
  // It may have ended, or be out of reach.
  const leave = (): void => void close().catch(() => {});
  gone.addEventListener("abort", leave, { once: true });
  return {
    events: outputOf(events, gone),
    write: (data) => followed.access.write(data),
    closeInput: close,
    resize: (rows, columns) => followed.access.resize(rows, columns),
  };
}

async function* outputOf(
  events: ReturnType<FollowedContainer["attach"]>,
  gone: AbortSignal,
): AsyncGenerator<ExecEvent> {
  for await (const event of events) {
    // How a container ended is in its status: the client asks for that.
    if (event.kind === "end") {
      yield { kind: "exit", code: 0 };
      return;
    }
    yield event;
  }
  if (gone.aborted) return;
  throw new PodnetError("EVENTS_LOST", "The output was not read in time", {
    hint: "See the container's log, and attach again",
  });
}
