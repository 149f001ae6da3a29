/**
 * A program that opens one connection from where it runs, sends pieces with a pause after each, and
 * says what came back and how the connection ended: `end`, `reset`, `refused`, or `open` when
 * nothing happened for a while. With `tls` it speaks TLS as Node does, post-quantum key share and
 * all. Its argument is a `Visit` as JSON.
 */
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { setTimeout as delay } from "node:timers/promises";

export interface Visit {
  readonly host: string;
  readonly port: number;
  /** As base64. */
  readonly pieces: readonly string[];
  readonly pauseMs?: number;
  /** Silence after which the connection counts as open. */
  readonly waitMs?: number;
  /** Connections at once, alike. */
  readonly times?: number;
  readonly tls?: { readonly servername: string; readonly maxVersion?: "TLSv1.2" };
}

export interface Visited {
  /** As latin1. */
  readonly data: string;
  readonly ended: "end" | "reset" | "refused" | "open";
}

async function visit({
  host,
  port,
  pieces,
  pauseMs = 0,
  waitMs = 3000,
  tls,
}: Visit): Promise<Visited> {
  const socket: Socket =
    tls === undefined
      ? connect({ host, port, noDelay: true })
      : connectTls({ host, port, ...tls, rejectUnauthorized: false });
  const data: Buffer[] = [];
  const ended = new Promise<Visited["ended"]>((resolve) => {
    socket.on("data", (bytes) => void data.push(bytes));
    socket.on("end", () => resolve("end"));
    socket.on("error", ({ code }: NodeJS.ErrnoException) =>
      resolve(code === "ECONNREFUSED" ? "refused" : "reset"),
    );
    socket.on("close", () => resolve("end"));
    socket.setTimeout(waitMs, () => resolve("open"));
  });
  for (const piece of pieces) {
    socket.write(Buffer.from(piece, "base64"));
    if (pauseMs > 0) await delay(pauseMs);
  }
  const how = await ended;
  // The last bytes may come with the reset.
  await delay(20);
  socket.destroy();
  return { data: Buffer.concat(data).toString("latin1"), ended: how };
}

const asked = JSON.parse(process.argv[2] ?? "{}") as Visit;
const all = await Promise.all(Array.from({ length: asked.times ?? 1 }, () => visit(asked)));
process.stdout.write(JSON.stringify(all));
process.exit(0);
