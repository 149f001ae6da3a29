import type { Queue } from "../core/queue.ts";
import type { Io, SignalName } from "./io.ts";
import { sizeOf } from "./terminal.ts";

/** What a program in a guest is sent while it runs. */
type InputMessage = {
  input:
    | { case: "stdin"; value: Uint8Array<ArrayBuffer> }
    | { case: "closeStdin"; value: Record<string, never> }
    | { case: "resize"; value: { rows: number; columns: number } }
    | { case: "signal"; value: { signal: number } };
};

/** Messages to be sent; there may be others among them. */
export interface ProgramInput extends Pick<Queue<unknown>, "length" | "onDrain"> {
  push(message: InputMessage): void;
}

const forwarded = { SIGINT: 2, SIGTERM: 15, SIGHUP: 1, SIGQUIT: 3 } as const;

/** Passes signals on to the program; a third ctrl-c ends the client. */
export function passSignals(io: Io, input: ProgramInput, gaveUp: AbortController): Disposable {
  const stack = new DisposableStack();
  let interrupts = 0;
  for (const [name, signal] of Object.entries(forwarded) as [SignalName, number][]) {
    stack.use(
      io.onSignal(name, () => {
        if (name === "SIGINT" && ++interrupts === 3) gaveUp.abort();
        else input.push({ input: { case: "signal", value: { signal } } });
      }),
    );
  }
  return stack;
}

/** Passes the terminal's size on whenever it changes. */
export function followSize(io: Io, input: ProgramInput): Disposable {
  return io.onSignal("SIGWINCH", () =>
    input.push({ input: { case: "resize", value: sizeOf(io.stdout) } }),
  );
}

/** Chunks of standard input that may wait to be sent. */
const most = 16;

/** Passes standard input on, and its end. */
export function passInput(io: Io, input: ProgramInput): Disposable {
  const { stdin } = io;
  const onData = (data: Uint8Array | string): void => {
    input.push({ input: { case: "stdin", value: Buffer.from(data as Uint8Array) } });
    if (input.length > most) stdin.pause();
  };
  const onEnd = (): void => input.push({ input: { case: "closeStdin", value: {} } });
  input.onDrain = () => stdin.resume();
  stdin.on("data", onData).on("end", onEnd);
  return {
    [Symbol.dispose]() {
      input.onDrain = undefined;
      stdin.off("data", onData).off("end", onEnd);
      stdin.pause();
    },
  };
}
