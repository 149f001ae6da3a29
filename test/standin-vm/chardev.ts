import { rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";

/** Who is at the other end of a chardev, one at a time. */
export interface ChardevUser {
  /** Someone has connected: is served until the socket closes. The socket is paused. */
  connected(socket: Socket): void;
}

/** A listening unix socket as QEMU has it: one client is served, others wait until it has left. */
export class Chardev {
  readonly id: string;
  readonly path: string;
  readonly #user: ChardevUser;
  readonly #waiting: Socket[] = [];
  #served: Socket | undefined;

  constructor(id: string, path: string, user: ChardevUser) {
    this.id = id;
    this.path = path;
    this.#user = user;
  }

  listen(): void {
    // QEMU replaces what is there.
    rmSync(this.path, { force: true });
    createServer({ pauseOnConnect: true }, (socket) => {
      socket.on("error", () => {});
      this.#waiting.push(socket);
      this.#serve();
    }).listen(this.path);
  }

  get connected(): boolean {
    return this.#served !== undefined;
  }

  /** Sends to whoever is served; false without a client, or when it does not read. */
  send(bytes: Uint8Array | string): boolean {
    return this.#served?.write(bytes) ?? false;
  }

  hangUp(): void {
    this.#served?.destroy();
  }

  /** Resolves when all that was sent has been taken by the kernel, or the other end is gone. */
  async flush(): Promise<void> {
    const socket = this.#served;
    if (socket === undefined) return;
    await new Promise<void>((resolve) => socket.write("", () => resolve()));
  }

  #serve(): void {
    if (this.#served !== undefined) return;
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#served = next;
    next.once("close", () => {
      this.#served = undefined;
      this.#serve();
    });
    this.#user.connected(next);
  }
}
