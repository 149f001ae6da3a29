import { connect, type Socket } from "node:net";
import { bareIp } from "../../../api/pod-spec.ts";
import { performAsync } from "../../../core/effect.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { Sandbox } from "../sandboxes.ts";
import type { PortConnection } from "./port-forward.ts";

/** How long a pod may take to answer, milliseconds. */
const connectMs = 10_000;

/**
 * Connects to a port of a sandbox, at its first address: what listens on the guest's loopback alone
 * is not reached. Throws `SYSCALL_FAILED` with what the kernel said.
 */
export async function connectToSandbox(
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
