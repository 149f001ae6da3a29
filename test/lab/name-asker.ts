import { createSocket } from "node:dgram";
import { connect } from "node:net";
import { decode, encode, type Packet, streamDecode, streamEncode } from "dns-packet";

/**
 * Asks a name server, as a program: `name-asker.ts udp|tcp SERVER NAME TYPE [FROM]`. Prints its
 * answer as JSON, or `null` after a second, and `"refused"` when the kernel says that no program
 * listens.
 */
const [way = "udp", server = "", name = "", type = "A", from] = process.argv.slice(2);
const query: Packet = {
  type: "query",
  id: 1 + Math.floor(Math.random() * 0xfffe),
  flags: 0x0100,
  questions: [{ name, type: type as "A" }],
};

function say(answer: Packet | "refused" | null): void {
  process.stdout.write(`${JSON.stringify(answer)}\n`, () => process.exit(0));
}

setTimeout(() => say(null), 1000);
if (way === "udp") {
  const socket = createSocket(server.includes(":") ? "udp6" : "udp4");
  socket.on("error", () => say("refused"));
  socket.on("message", (bytes) => say(decode(bytes)));
  socket.once("connect", () => socket.send(encode(query)));
  socket.bind(0, from, () => socket.connect(53, server));
} else {
  const socket = connect({
    host: server,
    port: 53,
    ...(from === undefined ? {} : { localAddress: from }),
  });
  socket.on("error", () => say("refused"));
  socket.on("connect", () => socket.write(streamEncode(query)));
  const parts: Buffer[] = [];
  socket.on("data", (bytes) => {
    parts.push(bytes);
    const whole = Buffer.concat(parts);
    const answer =
      whole.length > 2 && whole.length >= 2 + whole.readUInt16BE() ? streamDecode(whole) : null;
    if (answer !== null) say(answer);
  });
}
