import { guarded } from "../../../core/guard.ts";
import type { Clock } from "../../../core/clock.ts";
import type { HostLeaseState } from "../../../overlay/host-lease.ts";
import type { OverlayMemory } from "../records/overlay-memory.ts";

/**
 * Between notes that etcd is heard, milliseconds: by so much a podnetd that was killed makes it
 * seem longer ago.
 */
const noteMs = 60_000;

type Heard = Pick<HostLeaseState, "listed" | "staleSince">;

/** When etcd was last heard, also by an earlier podnetd. */
export class LastHeard implements Disposable {
  readonly #memory: Pick<OverlayMemory, "record" | "note">;
  readonly #clock: Clock;
  #state: Heard = { listed: false, staleSince: undefined };
  readonly #every: NodeJS.Timeout;

  constructor(memory: Pick<OverlayMemory, "record" | "note">, clock: Clock) {
    this.#memory = memory;
    this.#clock = clock;
    this.#every = setInterval(
      guarded("overlay", () => this.#note()),
      noteMs,
    ).unref();
  }

  /** How etcd is followed now. */
  follow({ listed, staleSince }: Heard): void {
    const before = this.#state;
    this.#state = { listed, staleSince };
    if (listed !== before.listed || staleSince !== before.staleSince) this.#note();
  }

  /** For how long it has not been heard, milliseconds; undefined while it is. */
  get staleMs(): number | undefined {
    const { listed, staleSince } = this.#state;
    if (staleSince === undefined) return undefined;
    const hereMs = this.#clock.monotonic() - staleSince;
    const { heardMs } = this.#memory.record;
    // A wall clock that was set back proves nothing.
    return listed || heardMs === undefined ? hereMs : Math.max(hereMs, this.#clock.now() - heardMs);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#every);
    this.#note();
  }

  #note(): void {
    const { listed, staleSince } = this.#state;
    if (!listed) return;
    const { monotonic, now } = { monotonic: this.#clock.monotonic(), now: this.#clock.now() };
    const heardMs = staleSince === undefined ? now : now - (monotonic - staleSince);
    this.#memory.note({ heardMs });
  }
}
