import { toPodnetError } from "../../../core/errors.ts";
import type { ExecEvent } from "../../../guest-init/channel/guest.ts";
import type { Channel, ChannelConnection } from "./channel.ts";
import { exitStatus, failureStatus } from "./command-status.ts";

/** Which streams of a program a client wants. */
export interface WantedStreams {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** A program whose input and output are streamed. */
export interface StreamedProgram {
  readonly events: AsyncIterable<ExecEvent>;
  write(data: Uint8Array): Promise<void>;
  /** The client sends no more. */
  closeInput(): Promise<void>;
  resize(rows: number, columns: number): Promise<void>;
}

/** The streams of a client's that are there. */
export interface CommandChannels {
  readonly error: Channel;
  readonly stdin?: Channel | undefined;
  readonly stdout?: Channel | undefined;
  readonly stderr?: Channel | undefined;
  readonly resize?: Channel | undefined;
}

/**
 * Streams a program until it ends or the client goes. `start` gets a signal by which the program
 * ends with the client.
 */
export async function streamCommand(
  connection: ChannelConnection,
  channels: CommandChannels,
  start: (gone: AbortSignal) => Promise<StreamedProgram>,
): Promise<void> {
  const { error, stdin, stdout, stderr, resize } = channels;
  const failed = new AbortController();
  let status: object;
  try {
    const program = await start(AbortSignal.any([connection.gone, failed.signal]));
    pumpInput(stdin, program).catch((thrown: unknown) => failed.abort(toPodnetError(thrown)));
    void pumpSizes(resize, program);
    let code = 0;
    for await (const event of program.events) {
      if (event.kind === "exit") code = event.code;
      else await (event.kind === "stdout" ? stdout : stderr)?.write(event.data);
    }
    status = exitStatus(code);
  } catch (thrown) {
    status = failureStatus(failed.signal.aborted ? failed.signal.reason : thrown);
  }
  for (const channel of [stdin, resize]) channel?.discard();
  for (const channel of [stdout, stderr]) channel?.end();
  await error.write(Buffer.from(JSON.stringify(status)));
  for (const channel of [error, stdin, resize]) channel?.end();
  connection.close();
}

async function pumpInput(stdin: Channel | undefined, program: StreamedProgram): Promise<void> {
  if (stdin !== undefined) for await (const data of stdin.input) await program.write(data);
  await program.closeInput();
}

/** Sizes of the client's terminal, one JSON object after the other. */
async function pumpSizes(resize: Channel | undefined, program: StreamedProgram): Promise<void> {
  if (resize === undefined) return;
  let text = "";
  for await (const data of resize.input) {
    text += Buffer.from(data).toString();
    for (let end = text.indexOf("}"); end !== -1; end = text.indexOf("}")) {
      const size = readSize(text.slice(0, end + 1));
      text = text.slice(end + 1);
      // A program that has ended has no terminal any more.
      if (size !== undefined) await program.resize(...size).catch(() => {});
    }
    if (text.length > mostText) text = "";
  }
}

const mostText = 1024;

function readSize(text: string): [rows: number, columns: number] | undefined {
  try {
    const { Width, Height } = JSON.parse(text) as { Width?: unknown; Height?: unknown };
    return isSize(Height) && isSize(Width) ? [Height, Width] : undefined;
  } catch {
    return undefined;
  }
}

const isSize = (value: unknown): value is number =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= 65_535;
