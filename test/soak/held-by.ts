import type { ChildProcess } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";

/** Asks a podnetd that was started with `environment` what it references. */
export class HeldBy implements Disposable {
  readonly #directory = mkdtempSync(path.join(tmpdir(), "podnet-held-"));
  readonly #file = path.join(this.#directory, "bytes");

  get environment(): Readonly<Record<string, string>> {
    return {
      NODE_OPTIONS: `--import=${path.join(import.meta.dirname, "held.ts")}`,
      PODNET_HELD: this.#file,
    };
  }

  /**
   * Bytes that are referenced after all garbage was collected. Rejects when no answer comes within
   * 10 s.
   */
  async bytes(podnetd: ChildProcess): Promise<number> {
    rmSync(this.#file, { force: true });
    podnetd.kill("SIGUSR2");
    const deadline = performance.now() + 10_000;
    while (!existsSync(this.#file)) {
      if (performance.now() > deadline) throw new Error("podnetd does not say what it references");
      await delay(5);
    }
    return Number(readFileSync(this.#file, "utf8"));
  }

  [Symbol.dispose](): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
