import { EventEmitter } from "node:events";
import { PassThrough } from "node:stream";
import { connectPodnet } from "../../../api/client.ts";
import type { Io, SignalName } from "../../../cli/io.ts";
import { run } from "../../../cli/program.ts";
import { targetOf } from "../../../cli/target.ts";

/** A stand-in for a terminal, or for a pipe, that keeps what is written to it. */
class Screen extends PassThrough {
  text = "";
  isTTY: boolean;
  columns = 100;
  rows = 30;
  raw: boolean[] = [];

  constructor(isTTY: boolean) {
    super();
    this.isTTY = isTTY;
  }

  /** Collects what commands write. */
  collect(): this {
    this.on("data", (data: Buffer) => {
      this.text += data.toString();
    });
    return this;
  }

  setRawMode(raw: boolean): this {
    this.raw.push(raw);
    return this;
  }
}

export interface Session {
  readonly stdin: Screen;
  readonly stdout: Screen;
  readonly stderr: Screen;
  readonly done: Promise<number>;
  /** Delivers a signal to the command. */
  signal(name: SignalName): void;
}

/** Starts the command in this process, its streams in the test's hands. */
export function start(
  args: readonly string[],
  options: { readonly socket?: string; readonly tty?: boolean; readonly env?: Io["env"] } = {},
): Session {
  const tty = options.tty === true;
  const signals = new EventEmitter();
  const stdin = new Screen(tty);
  const stdout = new Screen(tty).collect();
  const stderr = new Screen(tty).collect();
  const io: Io = {
    stdin,
    stdout,
    stderr,
    env: options.env ?? {},
    onSignal(name, listener) {
      signals.on(name, listener);
      return { [Symbol.dispose]: () => void signals.off(name, listener) };
    },
    connect(given) {
      const env = { PODNET_SOCKET: options.socket ?? "/nonexistent/sock", ...options.env };
      return Promise.resolve(connectPodnet(targetOf(given, env)));
    },
  };
  return {
    stdin,
    stdout,
    stderr,
    done: run(args, io),
    signal: (name) => void signals.emit(name),
  };
}

/** Runs the command to its end. */
export async function podnet(
  args: readonly string[],
  options: Parameters<typeof start>[1] = {},
): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const session = start(args, options);
  const code = await session.done;
  return { code, out: session.stdout.text, err: session.stderr.text };
}
