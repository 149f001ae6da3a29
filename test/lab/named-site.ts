/**
 * A program that is some hosts of the internet: HTTP at port 80 and HTTPS at 443 of one address.
 * It answers each request with what it was asked for; `/end` with a length has that many bytes;
 * WebSocket connections get their bytes back. `named-site.ts KEY CERTIFICATE ADDRESS`.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { once } from "node:events";

const [key = "", certificate = "", address = ""] = process.argv.slice(2);

function answer(request: IncomingMessage, response: ServerResponse): void {
  const { servername } = request.socket as TLSSocket;
  const [, size] = /^\/bytes\/([0-9]+)$/.exec(request.url ?? "") ?? [];
  request.resume();
  if (size !== undefined) response.end(Buffer.alloc(Number(size), "x"));
  else
    response.end(
      `at=${address} sni=${servername || "-"} host=${request.headers.host} ${request.url}\n`,
    );
}

/** RFC 6455 section 1.3. */
function upgrade(request: IncomingMessage, socket: Duplex): void {
  socket.on("error", () => {});
  if (request.url === "/refused") {
    socket.write("HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno\n");
    socket.on("data", (bytes) => void socket.write(`again: ${bytes}`));
    return;
  }
  const accept = createHash("sha1")
    .update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest("base64");
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  socket.pipe(socket);
}

const tls = createTlsServer({ key: readFileSync(key), cert: readFileSync(certificate) }, answer);
const plain = createServer(answer);
for (const [server, port] of [
  [plain, 80],
  [tls, 443],
] as const) {
  server.on("upgrade", upgrade);
  server.listen({ host: address, port });
  await once(server, "listening");
}
process.stdout.write("ready\n");
