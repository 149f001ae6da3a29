import type { Socket } from "node:net";
import { Chardev } from "./chardev.ts";

/** One virtserialport: the guest has it open or not, the host is connected or not. */
export class Wire {
  readonly chardev: Chardev;
  /** Milliseconds between two bytes; 0 sends as it comes. */
  readonly #dripMs: number;
  #socket: Socket | undefined;
  #open = false;
  #dripping: Promise<void> = Promise.resolve();
  /** Bytes from the host. */
  received: (bytes: Uint8Array) => void = () => {};
  /** The host has connected while the guest has the port open, or the other way round. */
  joined: () => void = () => {};
  /** The host has gone. */
  left: () => void = () => {};

  constructor(id: string, path: string, dripMs: number) {
    this.#dripMs = dripMs;
    this.chardev = new Chardev(id, path, {
      connected: (socket) => {
        this.#socket = socket;
        socket.on("data", (bytes: Buffer) => {
          if (this.#open) this.received(bytes);
        });
        socket.once("close", () => {
          this.#socket = undefined;
          this.left();
        });
        if (this.#open) this.#join();
      },
    });
  }

  /** The guest opens the port. What the host says before waits in the socket. */
  open(): void {
    this.#open = true;
    if (this.#socket !== undefined) this.#join();
  }

  close(): void {
    this.#open = false;
    this.#socket?.pause();
  }

  get connected(): boolean {
    return this.#socket !== undefined;
  }

  get isOpen(): boolean {
    return this.#open;
  }

  send(bytes: Uint8Array): void {
    if (!this.#open) return;
    if (this.#dripMs === 0) this.chardev.send(bytes);
    else this.#dripping = this.#dripping.then(() => this.#drip(bytes));
  }

  async #drip(bytes: Uint8Array): Promise<void> {
    for (const byte of bytes) {
      this.chardev.send(Uint8Array.of(byte));
      await new Promise((resolve) => setTimeout(resolve, this.#dripMs));
    }
  }

  #join(): void {
    this.#socket?.resume();
    this.joined();
  }
}
