import { createServer, type Server, type Socket } from "node:net";

/**
 * A virtio-serial port as both its ends see it: to the host a chardev socket of which QEMU is the
 * server, to the guest a device it reads and writes. A second client connects but gets no service
 * until the first has gone. What the guest writes waits until a host is there; what a host wrote
 * stays to be read even after it has gone.
 */
export class GuestPort {
  readonly #server: Server;
  readonly #onInput: () => void;
  /** Clients in the order they came; the first is served. */
  readonly #clients: Socket[] = [];
  #unread = Buffer.alloc(0);
  #unsent: Buffer[] = [];
  /** Sizes of what arrived, piece by piece. */
  readonly arrivals: number[] = [];
  /** The most that ever lay here unread. */
  mostUnread = 0;

  private constructor(onInput: () => void) {
    this.#onInput = onInput;
    this.#server = createServer({ pauseOnConnect: true }, (socket) => {
      this.#clients.push(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => this.#left(socket));
      socket.on("data", (data) => this.#arrived(data));
      socket.pause();
      if (this.#clients[0] === socket) this.#serve(socket);
    });
  }

  /** Listens at `path`; `onInput` is called whenever there is something new to read. */
  static async listen(path: string, onInput: () => void): Promise<GuestPort> {
    const port = new GuestPort(onInput);
    await new Promise<void>((resolve, reject) => {
      port.#server.once("error", reject);
      port.#server.listen(path, resolve);
    });
    return port;
  }

  /** Bytes of the host that the guest has not read yet. */
  get unread(): number {
    return this.#unread.length;
  }

  /** Looks at the first `count` unread bytes without reading them. */
  peek(count: number): Buffer {
    return this.#unread.subarray(0, count);
  }

  /** One read of the guest: at most `count` bytes, fewer when fewer are there. */
  read(count: number): Buffer {
    const bytes = this.#unread.subarray(0, count);
    this.#unread = this.#unread.subarray(bytes.length);
    return bytes;
  }

  write(bytes: Buffer): void {
    const client = this.#clients[0];
    if (client) client.write(bytes);
    else this.#unsent.push(bytes);
  }

  /** The virtual machine is gone: connections and listener close. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    // What was written last still goes out, but not to a client that does not read.
    for (const client of this.#clients) client.destroySoon();
    const timer = setTimeout(() => {
      for (const client of this.#clients) client.destroy();
    }, 200);
    await closed;
    clearTimeout(timer);
  }

  #serve(client: Socket): void {
    for (const bytes of this.#unsent) client.write(bytes);
    this.#unsent = [];
    client.resume();
  }

  #left(client: Socket): void {
    const wasServed = this.#clients[0] === client;
    this.#clients.splice(this.#clients.indexOf(client), 1);
    const next = this.#clients[0];
    if (wasServed && next) this.#serve(next);
  }

  #arrived(data: Buffer): void {
    this.arrivals.push(data.length);
    this.#unread = Buffer.concat([this.#unread, data]);
    this.mostUnread = Math.max(this.mostUnread, this.#unread.length);
    this.#onInput();
  }
}
