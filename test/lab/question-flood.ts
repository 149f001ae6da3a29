import { createSocket } from "node:dgram";
import { setTimeout as delay } from "node:timers/promises";
import { encode } from "dns-packet";

/**
 * Asks a name server without end, as a program: `question-flood.ts SERVER A_SECOND SECONDS FROM…`.
 * Each source address asks so many questions a second for names that end in `slow.example`, by UDP,
 * and reads no answer.
 */
const [server = "", aSecond = "0", seconds = "0", ...sources] = process.argv.slice(2);
const turnMs = 20;
const inATurn = Math.ceil((Number(aSecond) * turnMs) / 1000);
let asked = 0;

async function ask(from: string): Promise<void> {
  const socket = createSocket("udp4");
  socket.on("error", () => {});
  await new Promise<void>((resolve) => socket.bind(0, from, resolve));
  for (let left = (Number(seconds) * 1000) / turnMs; left > 0; left--) {
    for (let nth = 0; nth < inATurn; nth++) {
      const name = `n${asked++}.slow.example`;
      const query = {
        id: asked % 0xffff,
        flags: 0x0100,
        questions: [{ name, type: "A" as const }],
      };
      socket.send(encode({ type: "query", ...query }), 53, server);
    }
    await delay(turnMs);
  }
  socket.close();
}

process.stdout.write("begins\n");
await Promise.all(sources.map(ask));
