import { mkdtempSync, rmSync } from "node:fs";
import { type Server, type Socket, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

/**
 * One port: the host's end and the guest's. Each end connects; what one writes while the other is
 * away is kept.
 */
class Port {
  readonly hostPath: string;
  readonly guestPath: string;
  readonly servers: Server[] = [];
  #host: Socket | undefined;
  #guest: Socket | undefined;
  #toHost: Uint8Array[] = [];
  #toGuest: Uint8Array[] = [];

  constructor(directory: string, name: string) {
    this.hostPath = path.join(directory, `${name}.host`);
    this.guestPath = path.join(directory, `${name}.guest`);
  }

  async listen(): Promise<void> {
    await this.#serve(this.hostPath, (socket) => {
      this.#host = socket;
      socket.on("close", () => {
        if (this.#host === socket) this.#host = undefined;
      });
      for (const bytes of this.#toHost.splice(0)) socket.write(bytes);
      socket.on("data", (bytes) => {
        if (this.#guest === undefined) this.#toGuest.push(bytes);
        else if (!this.#guest.write(bytes)) this.#hold(socket, this.#guest);
      });
    });
    await this.#serve(this.guestPath, (socket) => {
      this.#guest = socket;
      socket.on("close", () => {
        if (this.#guest === socket) this.#guest = undefined;
        this.#host?.resume();
      });
      for (const bytes of this.#toGuest.splice(0)) socket.write(bytes);
      socket.on("data", (bytes) => {
        if (this.#host === undefined) this.#toHost.push(bytes);
        else if (!this.#host.write(bytes)) this.#hold(socket, this.#host);
      });
    });
  }

  close(): void {
    this.#host?.destroy();
    this.#guest?.destroy();
    for (const server of this.servers) server.close();
  }

  #hold(from: Socket, to: Socket): void {
    from.pause();
    to.once("drain", () => from.resume());
  }

  async #serve(socketPath: string, onSocket: (socket: Socket) => void): Promise<void> {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      onSocket(socket);
    });
    this.servers.push(server);
    await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  }
}

/**
 * Stands between a channel and an agent that runs as a plain process, as QEMU's chardev and
 * virtio-serial do: the host's connection stays when the agent dies, and bytes for an absent end
 * wait (QEMU 7.2).
 */
export class SerialRelay implements Disposable {
  readonly #directory = mkdtempSync(path.join(tmpdir(), "podnet-relay-"));
  readonly control = new Port(this.#directory, "control");
  readonly tty = new Port(this.#directory, "tty");

  static async start(): Promise<SerialRelay> {
    const relay = new SerialRelay();
    await relay.control.listen();
    await relay.tty.listen();
    return relay;
  }

  [Symbol.dispose](): void {
    this.control.close();
    this.tty.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
