import { connect, type Socket } from "node:net";
import { bareIp } from "../../../api/pod-spec.ts";
import { performAsync } from "../../../core/effect.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import { guarded } from "../../../core/guard.ts";
import { shown } from "../../../core/shown.ts";
import type { ExecEvent } from "../../../guest-init/channel/guest.ts";
import type { LivePod } from "../../pods/lifecycle/live-pod.ts";
import { hasAgentProgram, startAgentProgram } from "../agent-program.ts";
import type { Sandbox } from "../sandboxes.ts";
import type { PortConnection } from "./port-forward.ts";

/** How long a pod may take to answer, milliseconds. */
const connectMs = 10_000;

/**
 * Connects to a port of a sandbox: at the guest's loopback, as Kubernetes means it, and where
 * nothing listens there, at its first address. Throws `SYSCALL_FAILED` with what the kernel said.
 */
export async function connectToSandbox(
  sandbox: Sandbox,
  live: LivePod | undefined,
  port: number,
  gone: AbortSignal,
): Promise<PortConnection> {
  const inGuest =
    live === undefined || !hasAgentProgram(live)
      ? undefined
      : await connectInGuest(live, port, gone);
  return inGuest ?? (await connectToAddress(sandbox, port, gone));
}

const connectedLine = "connected\n";

/**
 * A connection from the guest to its own loopback; undefined when it is refused there. The agent's
 * program carries its bytes.
 */
async function connectInGuest(
  live: LivePod,
  port: number,
  gone: AbortSignal,
): Promise<PortConnection | undefined> {
  const cut = new AbortController();
  const signal = AbortSignal.any([gone, cut.signal]);
  const session = await startAgentProgram(live, ["--connect", String(port)], signal);
  const events = session.events[Symbol.asyncIterator]();
  if (!(await isConnected(events, cut))) {
    cut.abort();
    return undefined;
  }
  return {
    output: outputInGuest({ [Symbol.asyncIterator]: () => events }, gone),
    // What its program does not take any more is dropped, as the kernel drops it.
    write: (data) => session.write(data).catch(() => {}),
    endInput: () => void session.closeInput().catch(() => {}),
    close: () => cut.abort(),
  };
}

/** Whether the agent's program says so, before anything else and in time. */
async function isConnected(
  events: AsyncIterator<ExecEvent>,
  cut: AbortController,
): Promise<boolean> {
  const late = setTimeout(
    guarded("api", () => cut.abort()),
    connectMs,
  );
  try {
    let said = "";
    while (said !== connectedLine) {
      const next = await events.next();
      if (next.done === true || next.value.kind !== "stderr") return false;
      said += Buffer.from(next.value.data).toString();
      if (!connectedLine.startsWith(said)) return false;
    }
    return true;
  } catch (thrown) {
    if (cut.signal.aborted) return false;
    throw thrown;
  } finally {
    clearTimeout(late);
  }
}

async function* outputInGuest(
  events: AsyncIterable<ExecEvent>,
  gone: AbortSignal,
): AsyncGenerator<Uint8Array> {
  let why = "";
  for await (const event of events) {
    if (event.kind === "stdout") yield event.data;
    else if (event.kind === "stderr") why = Buffer.from(event.data).toString("utf8", 0, 200);
    else if (event.code === 0 || gone.aborted) return;
    else throw new PodnetError("SYSCALL_FAILED", `The connection broke: ${shown(why.trim())}`);
  }
}

async function connectToAddress(
  { id, plan }: Sandbox,
  port: number,
  gone: AbortSignal,
): Promise<PortConnection> {
  const [address] = plan.interfaces.flatMap(({ addresses }) => addresses).map(bareIp);
  if (address === undefined)
    throw new PodnetError("WRONG_STATE", `Sandbox ${id} has no address`, {
      hint: "Ports are forwarded to a sandbox's address",
    });
  const limit = AbortSignal.any([gone, AbortSignal.timeout(connectMs)]);
  const socket = await performAsync("socket", "connect to a sandbox's port", () =>
    connected(address, port, limit),
  );
  const cut = (): void => void socket.destroy();
  gone.addEventListener("abort", cut, { once: true });
  socket.once("close", () => gone.removeEventListener("abort", cut));
  return {
    output: outputOf(socket, gone),
    write: (data) => new Promise((resolve) => void socket.write(data, () => resolve())),
    endInput: () => void socket.end(),
    close: cut,
  };
}

async function* outputOf(socket: Socket, gone: AbortSignal): AsyncGenerator<Uint8Array> {
  try {
    for await (const data of socket) yield data as Uint8Array;
  } catch (cause) {
    if (gone.aborted) return;
    const { message } = toPodnetError(cause);
    throw new PodnetError("SYSCALL_FAILED", `The connection broke: ${message}`, { cause });
  }
}

function connected(host: string, port: number, limit: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port, allowHalfOpen: true });
    const failed = (why: string, cause?: unknown): void => {
      socket.destroy();
      reject(
        new PodnetError("SYSCALL_FAILED", `${host} port ${port} cannot be connected to: ${why}`, {
          cause,
        }),
      );
    };
    const late = (): void => failed("no answer in time");
    limit.addEventListener("abort", late, { once: true });
    socket.on("error", (cause) => failed(cause.message, cause));
    socket.once("connect", () => {
      limit.removeEventListener("abort", late);
      resolve(socket);
    });
  });
}
