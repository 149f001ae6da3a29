import { closeSync } from "node:fs";
import { bind, recv, socket } from "../../linux/ffi/libc.ts";
import { type Poll, pollFd } from "../../linux/ffi/poll.ts";

const afPacket = 17;
const sockRaw = 3;
const nonBlock = 0o4000;
const everything = 0x0003;

/** Hears every frame that passes a link, in this process's network namespace. */
export class FrameTap implements Disposable {
  readonly #fd: number;
  readonly #poll: Poll;
  readonly #heard: Buffer[] = [];
  #wake: (() => void) | undefined;

  private constructor(fd: number) {
    this.#fd = fd;
    this.#poll = pollFd(fd, "readable", () => this.#read());
  }

  /** `index` of the link. */
  static open(index: number): FrameTap {
    const fd = socket(afPacket, sockRaw | nonBlock, ((everything & 0xff) << 8) | (everything >> 8));
    if (fd < 0) throw new Error("A packet socket needs root");
    // struct sockaddr_ll
    const address = Buffer.alloc(20);
    address.writeUInt16LE(afPacket, 0);
    address.writeUInt16BE(everything, 2);
    address.writeInt32LE(index, 4);
    if (bind(fd, address, address.length) < 0)
      throw new Error(`No frames of link ${index} can be heard`);
    return new FrameTap(fd);
  }

  /** The first frame that `wanted` accepts, of those heard already or still to come. */
  async next(wanted: (frame: Buffer) => boolean): Promise<Buffer> {
    for (;;) {
      const at = this.#heard.findIndex(wanted);
      if (at >= 0) return this.#heard.splice(at, 1)[0] as Buffer;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #read(): void {
    const buffer = Buffer.alloc(65536);
    for (;;) {
      const length = recv(this.#fd, buffer, buffer.length, 0);
      if (length < 0) break;
      this.#heard.push(Buffer.from(buffer.subarray(0, length)));
    }
    this.#wake?.();
  }

  [Symbol.dispose](): void {
    this.#poll.close();
    closeSync(this.#fd);
  }
}
