/**
 * Asks a server for one large answer and for many short ones, each over a connection of its own,
 * and says how long they took: `visits.ts ADDRESS NAME BYTES CONNECTIONS`.
 */
import { connect } from "node:net";

const [host = "", name = "", bytes = "", connections = ""] = process.argv.slice(2);

/** Milliseconds until the answer is whole, and its bytes. */
async function ask(path: string): Promise<{ readonly ms: number; readonly bytes: number }> {
  const begin = performance.now();
  const socket = connect({ host, port: 80, noDelay: true });
  socket.write(`GET ${path} HTTP/1.1\r\nHost: ${name}\r\nConnection: close\r\n\r\n`);
  let got = 0;
  socket.on("data", (chunk) => void (got += chunk.length));
  await new Promise((resolve, reject) => socket.once("end", resolve).once("error", reject));
  const ms = performance.now() - begin;
  socket.destroy();
  return { ms, bytes: got };
}

const large = await ask(`/bytes/${bytes}`);
if (large.bytes < Number(bytes)) throw new Error(`Only ${large.bytes} of ${bytes} bytes came`);
const short: number[] = [];
for (let i = 0; i < Number(connections); i++) {
  const answer = await ask("/short");
  if (answer.bytes === 0) throw new Error("An empty answer");
  short.push(answer.ms);
}
console.log(JSON.stringify({ throughput: (large.bytes / large.ms) * 1000, connections: short }));
