import type { Podnet } from "../api/client.ts";
import type { CommandTrace } from "./command-trace.ts";
import { type TargetOptions, targetOf } from "./target.ts";

/** A stream to write to, which may be a terminal. */
export type Output = NodeJS.WritableStream & {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
};

/** A stream to read from, which may be a terminal. */
export type Input = NodeJS.ReadableStream & {
  readonly isTTY?: boolean;
  setRawMode?(raw: boolean): unknown;
  unref?(): unknown;
};

export type SignalName = "SIGINT" | "SIGTERM" | "SIGHUP" | "SIGQUIT" | "SIGWINCH";

/** Everything of the outside world that commands use, so that tests can replace it. */
export interface Io {
  readonly stdin: Input;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Calls back on a signal instead of its default action, until disposed. */
  onSignal(name: SignalName, listener: () => void): Disposable;
  /** The trace that this run is a part of, if any. */
  trace?: CommandTrace | undefined;
  /** Opens the API; loads it only now, so that help and usage errors are quick. */
  connect(options: TargetOptions): Promise<Podnet>;
}

/** This process, asked when it is needed: a snapshot (`snapshot.ts`) is of another one. */
export function processIo(): Io {
  const io: Io = {
    get stdin() {
      return process.stdin;
    },
    get stdout() {
      return process.stdout;
    },
    get stderr() {
      return process.stderr;
    },
    get env() {
      return process.env;
    },
    onSignal(name, listener) {
      process.on(name, listener);
      return { [Symbol.dispose]: () => void process.off(name, listener) };
    },
    async connect(options) {
      const { connectPodnet } = await import("../api/client.ts");
      return connectPodnet({ ...targetOf(options, process.env, io.trace), quickUnary: true });
    },
  };
  return io;
}

/** An `AbortSignal` that follows SIGINT and SIGTERM. The reason is the signal's number. */
export function interruption(io: Io): { readonly signal: AbortSignal } & Disposable {
  const controller = new AbortController();
  const int = io.onSignal("SIGINT", () => controller.abort(2));
  const term = io.onSignal("SIGTERM", () => controller.abort(15));
  return {
    signal: controller.signal,
    [Symbol.dispose]() {
      int[Symbol.dispose]();
      term[Symbol.dispose]();
    },
  };
}
