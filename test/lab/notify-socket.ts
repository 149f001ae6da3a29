import { closeSync } from "node:fs";
import { bind, recv, socket } from "../../linux/ffi/libc.ts";

/** A datagram socket at the address NOTIFY_SOCKET would have, as a service manager listens on. */
export class NotifySocket implements Disposable {
  readonly #fd: number;

  constructor(address: string) {
    const name = Buffer.from(address);
    if (address.startsWith("@")) name[0] = 0;
    // AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC
    this.#fd = socket(1, 2 | 0o4000 | 0o2000000, 0);
    const to = Buffer.concat([Buffer.from([1, 0]), name]);
    if (bind(this.#fd, to, to.length) !== 0) throw new Error(`Cannot listen on ${address}`);
  }

  /** The notifications since the last look. */
  read(): string[] {
    const reported: string[] = [];
    const bytes = new Uint8Array(4096);
    for (;;) {
      const length = recv(this.#fd, bytes, bytes.length, 0);
      if (length < 0) return reported;
      reported.push(Buffer.from(bytes.subarray(0, length)).toString());
    }
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }
}
