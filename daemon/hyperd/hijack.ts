import type { Socket } from "node:net";
import { isPodnetError } from "../../core/errors.ts";
import type { UpgradeRequest } from "../api/http/upgrade.ts";
import { type Answer, errorText, plain } from "./answers.ts";
import { callOf, failed } from "./calls.ts";
import type { RestOptions } from "./rest.ts";
import { type OpenStream, findRoute, readTarget } from "./routes.ts";
import { encoded, type Written } from "./stdcopy.ts";
import { writeAll } from "./write-all.ts";

/** Word for word: the client waits for it before it sends input. */
const upgraded = [
  "HTTP/1.1 101 UPGRADED",
  "Content-Type: application/vnd.docker.raw-stream",
  "Connection: Upgrade",
  "Upgrade: tcp",
  "",
  "",
].join("\r\n");

/** How long a caller may take to read the end of an answer, milliseconds. */
const lastMs = 1000;

/** Takes over connections for calls whose input and output they become. */
export const hijackHandler =
  (options: RestOptions) =>
  async (asked: UpgradeRequest): Promise<void> => {
    const { socket } = asked;
    const stop = new AbortController();
    const signal = AbortSignal.any([asked.signal, stop.signal]);
    let stream: OpenStream | undefined;
    try {
      stream = await openStream({ ...asked, signal }, options);
    } catch (thrown) {
      refuse(socket, failed(thrown, options.refused));
      return;
    }
    if (stream === undefined) {
      refuse(socket, plain("This call does not take over its connection\n", 400));
      return;
    }
    socket.write(upgraded);
    // A program may wait in silence for the very input that fails: the failure has to end it.
    pump(socket, stream).catch((thrown: unknown) => stop.abort(thrown));
    const cut = (): void => {
      options.refused("slow_reader");
      socket.destroy();
    };
    await writeAll(socket, piecesOf(stream, signal), options.limits.stallMs, cut);
    stop.abort();
    finish(socket);
  };

/** Opens what a request asks for; undefined where it asks for no such thing. */
async function openStream(
  { request, caller, refusal, signal, socket }: UpgradeRequest,
  { streams }: RestOptions,
): Promise<OpenStream | undefined> {
  if (refusal !== undefined) throw refusal;
  const { path, query } = readTarget(request.url ?? "");
  const found = findRoute(streams, request.method ?? "", path);
  if (found === undefined) return undefined;
  const closed = new Promise<void>((resolve) => socket.once("close", resolve));
  const { route, open } = found;
  return await route.open(callOf({ request, caller, signal, closed }, route, { query, open }));
}

/** The output's bytes. An error is the last of them, as a sentence. */
async function* piecesOf(
  { output, terminal }: OpenStream,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  try {
    for await (const written of output) yield encoded(written, terminal);
  } catch (thrown) {
    const why =
      signal.aborted && isPodnetError(signal.reason) ? (signal.reason as unknown) : thrown;
    const text = isPodnetError(why) ? errorText(why) : "podnetd failed: see its log\n";
    const last: Written = { kind: "stderr", data: Buffer.from(text) };
    yield encoded(last, terminal);
    if (!isPodnetError(why) && !signal.aborted) throw why;
  }
}

/** Passes on what the caller sends; the end of its half is the end of the input. */
async function pump(socket: Socket, stream: OpenStream): Promise<void> {
  const parts: AsyncIterable<Buffer> = socket.iterator({ destroyOnReturn: false });
  try {
    for await (const chunk of parts) await stream.write(chunk);
  } catch (thrown) {
    // One that broke has gone, which ends the call by itself.
    if (!isPodnetError(thrown)) return;
    throw thrown;
  }
  await stream.closeInput();
}

function refuse(socket: Socket, answer: Answer): void {
  const body = Buffer.from(typeof answer.body === "string" ? answer.body : "");
  socket.write(
    [
      `HTTP/1.1 ${answer.status} Refused`,
      `Content-Type: ${answer.type}`,
      `Content-Length: ${body.length}`,
      "Connection: close",
      "",
      "",
    ].join("\r\n"),
  );
  socket.write(body);
  finish(socket);
}

/** Ends a connection whose last bytes are on their way. */
function finish(socket: Socket): void {
  socket.end();
  // What the caller still sends is of no use.
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), lastMs).unref();
  socket.once("close", () => clearTimeout(timer));
}
