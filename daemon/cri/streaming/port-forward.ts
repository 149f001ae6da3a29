import { guard, guarded } from "../../../core/guard.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { printable } from "../../../core/names.ts";
import { shown } from "../../../core/shown.ts";
import type { Channel } from "./channel.ts";
import { openMs } from "./command-channels.ts";
import type { SpdyConnection, SpdyStream } from "./spdy-connection.ts";
import type { WebSocketConnection } from "./websocket-connection.ts";

/** A connection to a port of a sandbox. */
export interface PortConnection {
  readonly output: AsyncIterable<Uint8Array>;
  write(data: Uint8Array): Promise<void>;
  /** The client sends no more. */
  endInput(): void;
  close(): void;
}

/** Connects to a port; the connection ends with the signal. Throws why it cannot. */
export type ConnectPort = (port: number, gone: AbortSignal) => Promise<PortConnection>;

/** One connection: its bytes on one channel, and on the other why there is none. */
interface Forwarded {
  readonly port: number;
  readonly data: Channel;
  readonly error: Channel;
}

/** Carries bytes between a client and a port until the port's end, or the client is gone. */
async function forward(
  { port, data, error }: Forwarded,
  connect: ConnectPort,
  gone: AbortSignal,
): Promise<void> {
  try {
    const connection = await connect(port, gone);
    const toPort = async (): Promise<void> => {
      for await (const bytes of data.input) await connection.write(bytes);
      connection.endInput();
    };
    toPort().catch(() => connection.close());
    try {
      for await (const bytes of connection.output) await data.write(bytes);
    } finally {
      connection.close();
    }
  } catch (thrown) {
    const why = isPodnetError(thrown) ? thrown.message : "podnetd failed: see its log";
    await error.write(Buffer.from(shown(why)));
  }
  data.discard();
  data.end();
  error.end();
}

/** Streams that wait for their other half. */
const mostHalves = 64;

/** Forwards what a client opens two streams for: `data` and `error`, with a port and an id. */
export async function forwardSpdy(connection: SpdyConnection, connect: ConnectPort): Promise<void> {
  const halves = new Map<string, SpdyStream>();
  const running = new Set<Promise<void>>();
  for await (const stream of connection.opened) {
    const { headers } = stream;
    const type = headers.get("streamtype");
    const id = headers.get("requestid") ?? "";
    const other = halves.get(id);
    const isHalf = (type === "data" || type === "error") && id !== "";
    if (!isHalf || other?.headers.get("streamtype") === type) {
      stream.reset();
    } else if (other === undefined) {
      if (halves.size >= mostHalves) stream.reset();
      else waitForOther(halves, id, stream);
    } else {
      halves.delete(id);
      const [data, error] = type === "data" ? [stream, other] : [other, stream];
      const port = Number(data.headers.get("port"));
      const work = async (): Promise<void> => {
        await guard("api", () => forward({ port, data, error }, connect, connection.gone));
        running.delete(done);
      };
      const done = work();
      running.add(done);
    }
  }
  await Promise.all(running);
  connection.close();
}

function waitForOther(halves: Map<string, SpdyStream>, id: string, stream: SpdyStream): void {
  halves.set(id, stream);
  setTimeout(
    guarded("api", () => {
      if (halves.get(id) !== stream) return;
      halves.delete(id);
      stream.reset();
    }),
    openMs,
  ).unref();
}

/** Forwards one connection to each port; two channels for each, which begin with its number. */
export async function forwardWebSocket(
  connection: WebSocketConnection,
  ports: readonly number[],
  connect: ConnectPort,
): Promise<void> {
  await Promise.all(
    ports.map(async (port, i) => {
      const [data, error] = [connection.channel(2 * i), connection.channel(2 * i + 1)];
      const number = Uint8Array.of(port & 0xff, port >> 8);
      for (const channel of [data, error]) await channel.write(number);
      await forward({ port, data, error }, connect, connection.gone);
    }),
  );
  connection.close();
}

/** Throws `INVALID_ARGUMENT`. */
export function requirePort(port: number): void {
  if (Number.isInteger(port) && port >= 1 && port <= 65_535) return;
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(String(port))}" is not a port`, {
    field: "port",
    hint: "Use 1 to 65535",
  });
}
