import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * A peer that may say anything where a QEMU is expected. Written from QEMU's docs/interop/qmp-spec.
 */
export interface HostileQmp extends AsyncDisposable {
  readonly path: string;
}

export interface Command {
  readonly execute: string;
  readonly arguments: unknown;
  readonly id: number;
}

/** The peer's end of one connection. */
export class HostileConnection {
  readonly #socket: Socket;
  readonly #commands: Command[] = [];
  #wake: () => void = () => {};
  #text = "";

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      const lines = (this.#text + chunk).split("\n");
      this.#text = lines.pop() ?? "";
      for (const line of lines) this.#commands.push(JSON.parse(line) as Command);
      this.#wake();
    });
    socket.on("close", () => this.#wake());
  }

  /** Sends text or bytes as they are; an object as one line of JSON. */
  send(what: string | Uint8Array | object): void {
    const raw = typeof what === "string" || what instanceof Uint8Array;
    this.#socket.write(raw ? what : `${JSON.stringify(what)}\n`);
  }

  greet(): void {
    this.send(greeting);
  }

  /** Greets and answers `qmp_capabilities`: from here on the client believes in us. */
  async negotiate(): Promise<void> {
    this.greet();
    const { id } = await this.nextCommand();
    this.send({ return: {}, id });
  }

  /** The next command the client sends; throws when it leaves instead. */
  async nextCommand(): Promise<Command> {
    for (;;) {
      const next = this.#commands.shift();
      if (next !== undefined) return next;
      if (this.#socket.closed) throw new Error("the client has left");
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
  }

  /** Resolves when the client has closed the connection. */
  async left(): Promise<void> {
    if (!this.#socket.closed) await new Promise((resolve) => this.#socket.once("close", resolve));
  }

  end(): void {
    this.#socket.end();
  }
}

export const greeting = {
  QMP: {
    version: { qemu: { micro: 22, minor: 2, major: 7 }, package: "hostile" },
    capabilities: ["oob"],
  },
};

export const event = (name: string, data: object): object => ({
  event: name,
  data,
  timestamp: { seconds: 1_700_000_000, microseconds: 250_000 },
});

/** Listens in a directory of its own and runs `behave` for each client. */
export async function startHostileQmp(
  behave: (connection: HostileConnection) => void | Promise<void>,
): Promise<HostileQmp> {
  const directory = await mkdtemp(join(tmpdir(), "hostile-qmp-"));
  const path = join(directory, "qmp.sock");
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    // Clients are expected to hang up on us.
    socket.on("error", () => {});
    void Promise.resolve(behave(new HostileConnection(socket))).catch(() => {});
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return {
    path,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      await rm(directory, { recursive: true, force: true });
    },
  };
}
