import { mkdtempSync, rmSync } from "node:fs";
import { createServer as createHttp1 } from "node:http";
import { createServer as createHttp2, type Http2Session } from "node:http2";
import type { Server } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import type { ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

export interface TestServer extends AsyncDisposable {
  /** Cleartext HTTP/2. */
  readonly h2: string;
  /** HTTP/1.1. */
  readonly h1: string;
  readonly folder: string;
  /** Ends it as a crash would: connections are cut. */
  kill(): Promise<void>;
}

const listening = (server: Server, socket: string): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once("error", reject).listen(socket, resolve);
  });

/** Serves services over unix sockets in a folder of their own, without podnetd. */
export async function serve(
  routes: (router: ConnectRouter) => void,
  folder: string = mkdtempSync(path.join(tmpdir(), "podnet-api-")),
): Promise<TestServer> {
  const handler = connectNodeAdapter({ routes });
  const h1 = path.join(folder, "h1.sock");
  const h2 = path.join(folder, "h2.sock");
  const http1 = createHttp1(handler);
  const http2 = createHttp2(handler);
  const sessions = new Set<Http2Session>();
  http2.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
  });
  await Promise.all([listening(http1, h1), listening(http2, h2)]);
  let ended: Promise<void> | undefined;
  const end = async (): Promise<void> => {
    http1.closeAllConnections();
    for (const session of sessions) session.destroy();
    await Promise.all(
      [http1, http2].map((server) => new Promise((resolve) => server.close(resolve))),
    );
    rmSync(folder, { recursive: true, force: true });
  };
  const kill = (): Promise<void> => (ended ??= end());
  return { h1, h2, folder, kill, [Symbol.asyncDispose]: kill };
}
