import type { Socket } from "node:net";
import { guarded } from "../core/guard.ts";

const switching = /^HTTP\/1\.1 101[ \r]/;
const statusBytes = 13;

/**
 * Passes an upgraded request on: what the client sends behind it goes to the server only once the
 * server has switched protocols. Without that it could be a request for another host, so that
 * `reset` ends the connection.
 */
export function passUpgrade(client: Socket, server: Socket, reset: () => void): void {
  let status = Buffer.alloc(0);
  const answered = guarded(
    "relay",
    (piece: Buffer) => {
      status = Buffer.concat([status, piece]);
      if (status.length < statusBytes) return;
      server.pause();
      server.off("data", answered);
      client.write(status);
      if (switching.test(status.toString("latin1", 0, statusBytes))) client.pipe(server);
      else {
        client.on("data", guarded("relay", reset));
        client.once("end", () => server.end());
        client.resume();
      }
      server.pipe(client);
    },
    reset,
  );
  server.on("data", answered);
  server.once("end", () => client.end());
}
