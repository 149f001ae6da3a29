import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Machine } from "../../../test/lab/lab.ts";

/** A machine that traffic begins or ends at: a guest, or a namespace. */
export interface End {
  /** Where others reach it. */
  readonly address: string;
  /** Runs the traffic program to its end; answers its lines. */
  stream(...args: readonly string[]): Promise<readonly string[]>;
  /** Starts the traffic program's receiver; `next` is what it says next. */
  receiver(): Promise<Receiver>;
}

export interface Receiver extends AsyncDisposable {
  next(): Promise<string>;
}

export const port = "7001";

/** A namespace as such an end; `program` is the traffic program's path. */
export function machineEnd(machine: Machine, address: string, program: string): End {
  return {
    address,
    async stream(...args) {
      return (await machine.run(program, ...args)).split("\n").filter((line) => line !== "");
    },
    async receiver() {
      const child = machine.spawn([program, "receive", port], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      if (child.stdout === null) throw new Error("The receiver has no output");
      const ended = once(child, "exit");
      const lines = linesOf(createInterface({ input: child.stdout }));
      await lines.next();
      return {
        next: lines.next,
        async [Symbol.asyncDispose]() {
          child.kill();
          await ended;
        },
      };
    },
  };
}

/** Lines one by one, as they are asked for. */
export function linesOf(lines: AsyncIterable<string>) {
  const iterator = lines[Symbol.asyncIterator]();
  return {
    async next(): Promise<string> {
      const { value, done } = await iterator.next();
      if (done === true) throw new Error("The receiver has ended");
      return value;
    },
  };
}
