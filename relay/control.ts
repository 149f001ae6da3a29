import { rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { once } from "node:events";
import { guarded } from "../core/guard.ts";
import type { FromRelay, ToRelay } from "./messages.ts";

/** Longest line, bytes: a pod with the largest policies has less than one. */
const longestLine = 32 << 20;
/** Bytes that wait for podnetd, beyond which reports are kept as counts. */
const mostWaiting = 1 << 20;

/**
 * The socket at which podnetd says what holds. It has one client, the last that came: a podnetd
 * that starts anew replaces the one before it. Without a client the last state holds.
 */
export class Control {
  #client: Socket | undefined;
  readonly #apply: (message: ToRelay) => void;

  constructor(apply: (message: ToRelay) => void) {
    this.#apply = apply;
  }

  /** Throws what `listen` throws. */
  async listen(path: string): Promise<void> {
    rmSync(path, { force: true });
    const server = createServer(guarded("relay", (client: Socket) => this.#take(client)));
    server.listen({ path });
    await once(server, "listening");
  }

  /** Whether the message was taken. */
  send(message: FromRelay): boolean {
    const client = this.#client;
    if (client === undefined || client.writableLength > mostWaiting) return false;
    client.write(`${JSON.stringify(message)}\n`);
    return true;
  }

  #take(client: Socket): void {
    this.#client?.destroy();
    this.#client = client;
    let rest = "";
    client.setEncoding("utf8");
    client.on("error", () => {});
    client.once(
      "close",
      guarded("relay", () => {
        if (this.#client === client) this.#client = undefined;
      }),
    );
    const read = (text: string): void => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#hear(JSON.parse(line) as ToRelay);
      if (rest.length > longestLine) client.destroy();
    };
    client.on(
      "data",
      guarded("relay", read, () => client.destroy()),
    );
  }

  #hear(message: ToRelay): void {
    this.#apply(message);
    if (message.seq !== undefined) this.send({ type: "done", seq: message.seq });
  }
}
