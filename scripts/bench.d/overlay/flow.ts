import path from "node:path";
import { createInterface } from "node:readline";
import { once } from "node:events";
import type { Container } from "../../../test/lab/overlay-container.ts";

const program = path.join(import.meta.dirname, "tcp-flow.py");

/** Gbit/s of one TCP flow between two containers. */
export async function flow(from: Container, to: Container, seconds: number): Promise<number> {
  const receiver = to.machine.spawn(["python3", program, "serve", to.address], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const { stdout } = receiver;
  if (stdout === null) throw new Error("The receiver has no output");
  const lines: string[] = [];
  const reader = createInterface({ input: stdout }).on("line", (line) => lines.push(line));
  const ended = once(reader, "close");
  try {
    await once(reader, "line", { signal: AbortSignal.timeout(10_000) });
    await from.machine.run("python3", program, "send", to.address, `${seconds}`);
    await ended;
  } finally {
    receiver.kill();
  }
  return Number(lines[1]) / 1e9;
}
