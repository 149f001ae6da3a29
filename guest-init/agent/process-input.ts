import type { Loop, Watch } from "./loop.ts";
import { SysError, pollEvent, sys } from "./sys.ts";

/** Input a process has not read, bytes: above it the tty channel waits. */
const inputLimit = 256 * 1024;
/** Ends the input of a terminal: Ctrl-D. */
const endOfTransmission = Uint8Array.of(4);

/** Standard input of a process: what it does not read yet waits here. */
export class ProcessInput {
  readonly #loop: Loop;
  readonly #terminal: boolean;
  readonly #taken: () => void;
  #fd: number;
  #waiting: Uint8Array[] = [];
  #watch: Watch | undefined;
  #ends = false;

  /** `taken`: it read its input, there is room for more. */
  constructor(loop: Loop, fd: number, terminal: boolean, taken: () => void) {
    this.#loop = loop;
    this.#fd = fd;
    this.#terminal = terminal;
    this.#taken = taken;
  }

  /** Whether the tty channel should wait for this process to read. */
  get clogged(): boolean {
    if (this.#waiting.length === 0) return false;
    return this.#waiting.reduce((sum, part) => sum + part.length, 0) > inputLimit;
  }

  /** Data for standard input; empty ends it. */
  push(data: Uint8Array): void {
    if (this.#fd < 0 || this.#ends) return;
    if (data.length > 0) this.#waiting.push(data);
    else {
      this.#ends = true;
      if (this.#terminal) this.#waiting.push(endOfTransmission);
    }
    this.#write();
  }

  close(): void {
    this.#watch?.stop();
    this.#watch = undefined;
    this.#waiting = [];
    if (this.#fd >= 0) sys.close(this.#fd);
    this.#fd = -1;
  }

  #write(): void {
    try {
      for (let data = this.#waiting[0]; data !== undefined; data = this.#waiting[0]) {
        const count = sys.write(this.#fd, data);
        if (count === undefined) break;
        if (count === data.length) this.#waiting.shift();
        else this.#waiting[0] = data.subarray(count);
      }
    } catch (thrown) {
      if (!(thrown instanceof SysError)) throw thrown;
      this.#waiting = [];
      this.#ends = true;
    }
    if (this.#waiting.length === 0) {
      this.#watch?.stop();
      this.#watch = undefined;
      if (this.#ends && !this.#terminal) this.close();
      this.#taken();
    } else this.#watch ??= this.#loop.watch(this.#fd, pollEvent.out, () => this.#write());
  }
}
