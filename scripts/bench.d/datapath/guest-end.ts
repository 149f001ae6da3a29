import { readFileSync } from "node:fs";
import type { ExecEvent } from "../../../guest-init/channel/guest.ts";
import { type End, linesOf, port } from "./ends.ts";

/** A program under way in a guest. */
interface GuestRun {
  readonly events: AsyncIterable<ExecEvent>;
  kill(): Promise<void>;
}

/** Starts a program in a guest; its input is `stdin`, and ends. */
export type RunInGuest = (args: readonly string[], stdin: Uint8Array) => Promise<GuestRun>;

const inGuest = "/stream";
const nothing = new Uint8Array(0);

async function* linesIn(events: AsyncIterable<ExecEvent>): AsyncGenerator<string> {
  let text = "";
  for await (const event of events) {
    if (event.kind === "exit" && event.code !== 0) throw new Error(`${inGuest}: ${event.code}`);
    if (event.kind === "exit") return;
    text += Buffer.from(event.data).toString();
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    yield* lines;
  }
}

/** Puts the traffic program into a guest, and makes it an end of traffic. */
export async function guestEnd(run: RunInGuest, address: string, program: string): Promise<End> {
  const script = `cat > ${inGuest} && chmod +x ${inGuest}`;
  const put = await run(["sh", "-c", script], readFileSync(program));
  await Array.fromAsync(linesIn(put.events));
  return {
    address,
    async stream(...args) {
      const { events } = await run([inGuest, ...args], nothing);
      return Array.fromAsync(linesIn(events));
    },
    async receiver() {
      const { events, kill } = await run([inGuest, "receive", port], nothing);
      const lines = linesOf(linesIn(events));
      await lines.next();
      return { next: lines.next, [Symbol.asyncDispose]: kill };
    },
  };
}
