/**
 * One TCP connection whose bytes come back as they went.
 *   echo-stream.ts serve PORT            says "ready"; sends back what it gets, once
 *   echo-stream.ts ask ADDRESS PORT MIB  says "same", or how far it was
 */
import { createCipheriv } from "node:crypto";
import { connect, createServer } from "node:net";

const [role = "", ...words] = process.argv.slice(2);

if (role === "serve") {
  const server = createServer((socket) => {
    server.close();
    socket.pipe(socket);
  });
  server.listen(Number(words[0]), () => console.log("ready"));
} else {
  const [host = "", port = "", mib = ""] = words;
  // Bytes that repeat nowhere, in writes of all sizes.
  const sent = createCipheriv("aes-128-ctr", Buffer.alloc(16, 7), Buffer.alloc(16)).update(
    Buffer.alloc(Number(mib) << 20),
  );
  const socket = connect(Number(port), host, () => {
    for (let from = 0, size = 1; from < sent.length; from += size, size = (size * 5 + 3) % 70_001)
      socket.write(sent.subarray(from, from + size));
    socket.end();
  });
  let seen = 0;
  socket.on("data", (got) => {
    if (!got.equals(sent.subarray(seen, seen + got.length))) {
      console.log(`other bytes than were sent, after ${seen}`);
      process.exit(1);
    }
    seen += got.length;
  });
  socket.on("end", () => console.log(seen === sent.length ? "same" : `ended after ${seen}`));
}
