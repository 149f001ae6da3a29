import { closeSync, constants, fdatasync, openSync } from "node:fs";
import { promisify } from "node:util";
import { performAsync } from "../../core/effect.ts";

/**
 * Flushes SQLite's write-ahead log on a thread of libuv's, so that podnetd's own goes on meanwhile.
 * All that wait share one flush. A flushed log is what SQLite's `synchronous = FULL` gives for each
 * commit: at a loss of power, the log is read up to its last whole commit.
 */
export class LogFlush implements Disposable {
  readonly #path: string;
  readonly #flushFile: (fd: number) => Promise<void>;
  #fd: number | undefined;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  /** For the database at this path. `flushFile` is another one where time is played. */
  constructor(path: string, flushFile: (fd: number) => Promise<void> = promisify(fdatasync)) {
    this.#path = `${path}-wal`;
    this.#flushFile = flushFile;
  }

  /**
   * Resolves once all that was written before this call survives a loss of power. Rejects with what
   * the kernel said: then some of it may not. Callers of one turn share a flush; with `now` it
   * begins at once, unless another one runs.
   */
  wait({ now = false } = {}): Promise<void> {
    if (now && this.#running === undefined && this.#next === undefined) return this.#run();
    // A flush that runs may have begun before the caller wrote.
    this.#next ??= this.#after(this.#running);
    return this.#next;
  }

  async #after(running: Promise<void> | undefined): Promise<void> {
    // Whether it failed is said to who waits for it. (Waits for nothing but a turn the first time:
    // callers of one turn share a flush.)
    await running?.catch(() => {});
    this.#next = undefined;
    await this.#run();
  }

  #run(): Promise<void> {
    const running = performAsync("commit", "flush", () => this.#flush());
    this.#running = running;
    const over = (): void => {
      if (this.#running === running) this.#running = undefined;
    };
    running.then(over, over);
    return running;
  }

  async #flush(): Promise<void> {
    // SQLite locks other files: closing this one takes no lock away.
    this.#fd ??= openSync(this.#path, constants.O_RDWR | constants.O_NOFOLLOW);
    await this.#flushFile(this.#fd);
  }

  [Symbol.dispose](): void {
    if (this.#fd === undefined) return;
    const fd = this.#fd;
    this.#fd = undefined;
    // A flush under way uses it.
    void (this.#running ?? Promise.resolve()).catch(() => {}).then(() => closeSync(fd));
  }
}
