import type { Log } from "../../../linux/log.ts";
import type { OverlayChange } from "../../../network/overlay/change.ts";
import type { OverlayDesired } from "../../../network/model/overlay.ts";
import type { Overlays } from "../../../network/overlay/overlays.ts";
import { WorkQueue } from "../../reconcile/work-queue.ts";

/** The time limit for removing objects that belong to no overlay any more, in milliseconds. */
export const sweepMs = 60_000;
/** The wait before a retry. */
const backoff = { firstMs: 500, longestMs: 2000 } as const;

export interface LeftoversParts {
  readonly overlays: Pick<Overlays, "sweep">;
  readonly log: Pick<Log, "error">;
  /** The desired state of the kernel for overlays. */
  readonly wanted: () => readonly OverlayDesired[];
}

/** Takes from the kernel what no overlay of this host wants any more. */
export class Leftovers implements AsyncDisposable {
  readonly #parts: LeftoversParts;
  readonly #queue: WorkQueue<"sweep">;

  constructor(parts: LeftoversParts) {
    this.#parts = parts;
    this.#queue = new WorkQueue({
      name: "overlay-leftovers",
      backoff,
      onDegraded: (_, { error }) =>
        parts.log.error({ err: error }, "Failed to remove leftovers of overlays; retrying"),
    });
  }

  /** Throws what the host says. */
  async sweep(wanted = this.#parts.wanted()): Promise<readonly OverlayChange[]> {
    return this.#parts.overlays.sweep(wanted, AbortSignal.timeout(sweepMs));
  }

  /** Removes them as soon as possible; retried until it succeeds. */
  soon(): void {
    this.#queue.add("sweep", async () => void (await this.sweep()));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue.close();
  }
}
