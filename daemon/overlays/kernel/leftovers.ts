import { guarded } from "../../../core/guard.ts";
import type { Log } from "../../../linux/log.ts";
import type { OverlayChange } from "../../../network/overlay/change.ts";
import type { OverlayDesired } from "../../../network/model/overlay.ts";
import type { Overlays } from "../../../network/overlay/overlays.ts";

/** Longest that taking away what is no overlay's any more may take, milliseconds. */
export const sweepMs = 60_000;
/** Until it is tried again, milliseconds. */
const againMs = 2000;

export interface LeftoversParts {
  readonly overlays: Pick<Overlays, "sweep">;
  readonly log: Pick<Log, "error">;
  /** What the kernel is to have of overlays. */
  readonly wanted: () => readonly OverlayDesired[];
}

/** Takes from the kernel what no overlay of this host wants any more. */
export class Leftovers implements AsyncDisposable {
  readonly #parts: LeftoversParts;
  #sweeping: Promise<void> = Promise.resolve();
  #again: NodeJS.Timeout | undefined;
  #over = false;

  constructor(parts: LeftoversParts) {
    this.#parts = parts;
  }

  /** Throws what the host says. */
  async sweep(wanted = this.#parts.wanted()): Promise<readonly OverlayChange[]> {
    return this.#parts.overlays.sweep(wanted, AbortSignal.timeout(sweepMs));
  }

  /** As soon as that can be done; tried again until it can. */
  soon(): void {
    this.#sweeping = this.#sweeping.then(async () => {
      try {
        await this.sweep();
      } catch (err) {
        if (this.#over) return;
        this.#parts.log.error({ err }, "Cannot take away what has been left");
        clearTimeout(this.#again);
        this.#again = setTimeout(
          guarded("overlay", () => this.soon()),
          againMs,
        ).unref();
      }
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over = true;
    clearTimeout(this.#again);
    await this.#sweeping;
  }
}
