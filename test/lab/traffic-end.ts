// A program that stands in a network namespace and opens, serves and asks on command, a line of
// JSON each way.
import { createSocket } from "node:dgram";
import { connect, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { assertNever } from "../../core/brand.ts";

/** A command to an end. */
export type Order =
  /** Begins a flow of UDP that never pauses; answers what was heard first. */
  | { readonly do: "talk"; readonly address: string; readonly port: number }
  /** What was last heard of the flow with that port, from now on. */
  | { readonly do: "heard"; readonly port: number; readonly waitMs: number }
  | { readonly do: "serve"; readonly protocol: "tcp" | "udp"; readonly port: number }
  | {
      readonly do: "ask";
      readonly protocol: "tcp" | "udp";
      readonly address: string;
      readonly port: number;
      readonly waitMs: number;
    };

/** Without the prefix that IPv4 has on a socket of both families. */
const plain = (address: string | undefined): string => (address ?? "?").replace(/^::ffff:/, "");

/** Answers everybody with the address they come from and the port they have reached. */
function serve(protocol: "tcp" | "udp", port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    if (protocol === "tcp") {
      const server = createServer((socket: Socket) => {
        socket.on("error", () => {});
        socket.end(`${plain(socket.remoteAddress)} ${port}`);
      });
      server.on("error", reject);
      server.listen(port, "::", () => resolve("up"));
    } else {
      const socket = createSocket("udp6");
      socket.on("error", reject);
      socket.on("message", (_bytes, from) =>
        socket.send(`${plain(from.address)} ${port}`, from.port, from.address),
      );
      socket.bind(port, "::", () => resolve("up"));
    }
  });
}

/** What the other side said; `refused`, or `silence`. */
function ask(order: Order & { readonly do: "ask" }): Promise<string> {
  const { protocol, address, port, waitMs } = order;
  return new Promise((resolve) => {
    if (protocol === "tcp") {
      let said = "";
      const socket = connect(port, address);
      const end = (what: string): void => {
        resolve(what);
        socket.destroy();
      };
      socket.setTimeout(waitMs, () => end("silence"));
      socket.on("data", (bytes: Buffer) => (said += bytes.toString()));
      socket.on("end", () => end(said));
      socket.on("error", (error: NodeJS.ErrnoException) =>
        end(error.code === "ECONNREFUSED" ? "refused" : String(error.code)),
      );
    } else {
      const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
      const end = (what: string): void => {
        clearTimeout(timer);
        resolve(what);
        socket.close();
      };
      const timer = setTimeout(() => end("silence"), waitMs);
      socket.on("message", (bytes) => end(bytes.toString()));
      socket.on("error", (error: NodeJS.ErrnoException) =>
        end(error.code === "ECONNREFUSED" ? "refused" : String(error.code)),
      );
      // Connected, so that a refusal is heard of, and an answer from elsewhere is none.
      socket.connect(port, address, () => socket.send("hello"));
      const again = setInterval(() => socket.send("hello"), 250);
      socket.on("close", () => clearInterval(again));
    }
  });
}

/** What each flow has last heard, by the port it speaks to. */
const heard = new Map<number, string>();

async function talk(address: string, port: number): Promise<string> {
  const socket = createSocket(address.includes(":") ? "udp6" : "udp4");
  socket.on("message", (bytes) => heard.set(port, bytes.toString()));
  socket.on("error", () => heard.set(port, "refused"));
  socket.connect(port, address, () => setInterval(() => socket.send("hello", () => {}), 20));
  return await listen(port, 3000);
}

async function listen(port: number, waitMs: number): Promise<string> {
  heard.delete(port);
  for (const end = performance.now() + waitMs; performance.now() < end && !heard.has(port); )
    await new Promise((resolve) => setTimeout(resolve, 10));
  return heard.get(port) ?? "silence";
}

function obey(order: Order): Promise<string> {
  switch (order.do) {
    case "serve":
      return serve(order.protocol, order.port);
    case "ask":
      return ask(order);
    case "talk":
      return talk(order.address, order.port);
    case "heard":
      return listen(order.port, order.waitMs);
    default:
      return assertNever(order);
  }
}

if (process.argv[1] === import.meta.filename) {
  createInterface({ input: process.stdin }).on("line", (line) => {
    const { id, ...order } = JSON.parse(line) as Order & { readonly id: number };
    void obey(order as Order)
      .catch((error: unknown) => `failed: ${String(error)}`)
      .then((said) => process.stdout.write(`${JSON.stringify({ id, said })}\n`));
  });
  process.stdin.on("close", () => process.exit(0));
}
