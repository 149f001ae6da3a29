import { abortable } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import type { CommandChannels, WantedStreams } from "./remote-command.ts";
import type { SpdyConnection, SpdyStream } from "./spdy-connection.ts";
import type { WebSocketConnection } from "./websocket-connection.ts";

/** How long a client may take to open its streams, milliseconds. */
export const openMs = 30_000;

const names = ["error", "stdin", "stdout", "stderr", "resize"] as const;
type Name = (typeof names)[number];

/** The streams that a client opens for a program, and that a server waits for. */
function namesOf({ stdin, stdout, stderr, tty }: WantedStreams): Name[] {
  const is = { error: true, stdin, stdout, stderr: stderr && !tty, resize: tty };
  return names.filter((name) => is[name]);
}

/** Waits until a client has opened all its streams. Throws `INVALID_ARGUMENT` for others. */
export async function spdyChannels(
  { opened, gone }: SpdyConnection,
  wanted: WantedStreams,
): Promise<CommandChannels> {
  const missing = new Set(namesOf(wanted));
  const channels = new Map<Name, SpdyStream>();
  const collect = async (): Promise<void> => {
    for await (const stream of opened) {
      const name = stream.headers.get("streamtype") as Name;
      if (!missing.delete(name))
        throw new PodnetError("INVALID_ARGUMENT", `No stream "${printable(name)}" was asked for`);
      channels.set(name, stream);
      if (missing.size === 0) return;
    }
  };
  const limit = AbortSignal.any([gone, AbortSignal.timeout(openMs)]);
  await abortable(collect(), limit, "Opening the streams");
  const error = channels.get("error");
  if (error === undefined)
    throw new PodnetError("INVALID_ARGUMENT", "The client opened too few streams");
  const [, stdin, stdout, stderr, resize] = names.map((name) => channels.get(name));
  return { error, stdin, stdout, stderr, resize };
}

/** Numbers of the channels of a program. */
const numbers = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4 } as const;
export const commandChannelCount = 5;

/** Says to the client on the first channel that it reads that the streams are there. */
export async function webSocketChannels(
  connection: WebSocketConnection,
  wanted: WantedStreams,
): Promise<CommandChannels> {
  const asked = namesOf(wanted);
  const channel = (name: Name) =>
    asked.includes(name) ? connection.channel(numbers[name]) : undefined;
  const error = connection.channel(numbers.error);
  const [stdout, stderr] = [channel("stdout"), channel("stderr")];
  await (stdout ?? stderr ?? error).write(new Uint8Array());
  return { error, stdin: channel("stdin"), stdout, stderr, resize: channel("resize") };
}
