/**
 * Two ends of a flow of UDP, a packet a millisecond: `send ADDRESS PORT`, and `hear PORT`, which
 * says `up`, and for each line it reads when the last packet arrived (milliseconds of the clock);
 * for the line `next`, once a packet has arrived after it.
 */
import { createSocket } from "node:dgram";
import { createInterface } from "node:readline";

const [what, ...words] = process.argv.slice(2);
const socket = createSocket("udp4");
if (what === "send") {
  const [address = "", port = ""] = words;
  socket.on("error", () => {});
  socket.connect(Number(port), address, () => {
    // (What is refused comes as an error of the next packet.)
    setInterval(() => socket.send("x", () => {}), 1);
  });
} else {
  let last = 0;
  let waiting = false;
  socket.on("message", () => {
    last = Date.now();
    if (waiting) process.stdout.write(`${last}\n`);
    waiting = false;
  });
  socket.bind(Number(words[0]), () => process.stdout.write("up\n"));
  createInterface({ input: process.stdin }).on("line", (line) => {
    if (line === "next") waiting = true;
    else process.stdout.write(`${last}\n`);
  });
}
