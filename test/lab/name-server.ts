import { createSocket } from "node:dgram";
import { createServer } from "node:net";
import { type Answer, decode, encode, streamEncode } from "dns-packet";

/**
 * A small name server for the lab's internet, run as a program: `name-server.ts ADDRESS…`, and
 * NAME=ADDRESS for each further name that it is to know. It knows
 * `big.example` (too long for a datagram), `long.example` (too long for one of 512 bytes, and it
 * sends no longer one), `who.example` (a TXT of who asks), `silent.example` (never answers), and
 * calls everything else 203.0.113.99.
 */
function answersOf(name: string, type: string, from: string): Answer[] {
  const texts = type !== "TXT" ? 0 : name === "big.example" ? 20 : name === "long.example" ? 5 : 0;
  if (texts > 0)
    return Array.from({ length: texts }, (_, i) => ({
      type: "TXT",
      name,
      ttl: 1,
      data: `${i} ${"x".repeat(200)}`,
    }));
  const known = names.filter(([each]) => each === name);
  if (known.length > 0)
    return known.flatMap(([, data = ""]): Answer[] => {
      const family = data.includes(":") ? "AAAA" : "A";
      return type === family ? [{ type, name, ttl: 60, data }] : [];
    });
  if (name === "who.example") return [{ type: "TXT", name, ttl: 1, data: from }];
  return type === "A" ? [{ type: "A", name, ttl: 1, data: "203.0.113.99" }] : [];
}

const words = process.argv.slice(2);
const names = words.flatMap((word) => (word.includes("=") ? [word.split("=")] : []));

interface Reply {
  readonly packet: Parameters<typeof encode>[0];
}

function replyTo(bytes: Buffer, from: string): Reply | undefined {
  const { id = 0, questions = [] } = decode(bytes);
  const [asked] = questions;
  const name = asked?.name.toLowerCase() ?? "";
  process.stdout.write(`${from} asks ${name} ${asked?.type ?? ""}\n`);
  if (name === "silent.example") return undefined;
  const answers = answersOf(name, asked?.type ?? "", from);
  return { packet: { type: "response", id, flags: 0x0180, questions, answers } };
}

for (const address of words.filter((word) => !word.includes("="))) {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  socket.on("message", (bytes, from) => {
    const reply = replyTo(bytes, from.address);
    if (reply === undefined) return;
    const whole = encode(reply.packet);
    const short =
      whole.length <= 512 ? whole : encode({ ...reply.packet, flags: 0x0380, answers: [] });
    socket.send(short, from.port, from.address);
  });
  socket.bind(53, address);
  createServer((connection) => {
    connection.on("error", () => {});
    connection.once("data", (bytes) => {
      const reply = replyTo(bytes.subarray(2), connection.remoteAddress ?? "");
      if (reply !== undefined) connection.end(streamEncode(reply.packet));
    });
  }).listen(53, address);
}
