import { guarded } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";
import { watchRtnetlink } from "../../linux/netlink/rtnetlink-events.ts";
import type { RtnetlinkEvent } from "../../linux/rtnetlink/event.ts";
import type { OverlayDesired } from "../../network/model/overlay.ts";
import type { Overlays } from "../../network/overlay/overlays.ts";

/** The time from a kernel event to the look that it triggers, in milliseconds. */
const quietMs = 100;

export interface OverlayWatchParts {
  readonly overlays: Pick<Overlays, "hasAsked" | "isDamaged" | "tunnels">;
  /**
   * The time within which changes that no event reports are repaired, in milliseconds; with 0, only
   * tunnels that ended are repaired.
   */
  readonly driftMs: number;
  readonly log: Pick<Log, "warn">;
  /** The desired state of the kernel for overlays. */
  readonly wanted: () => readonly OverlayDesired[];
  /** Looks at all overlays. */
  readonly look: () => void;
}

/** Triggers looks at overlays: soon after the kernel reports damage, and periodically. */
export class OverlayWatch implements Disposable {
  readonly #parts: OverlayWatchParts;
  readonly #opened = new DisposableStack();
  #timer: NodeJS.Timeout | undefined;

  /** Begins to watch the network namespace of the calling thread. */
  constructor(parts: OverlayWatchParts) {
    this.#parts = parts;
    const { driftMs, overlays, log } = parts;
    if (driftMs > 0) {
      // Twice in that time, so that changes without an event are repaired within it, including the
      // time of a look.
      const every = setInterval(
        guarded("overlay", () => this.#soon()),
        driftMs / 2,
      );
      every.unref();
      this.#opened.defer(() => clearInterval(every));
      // Changes of rules, and objects that other programs add, are found at the next look: the
      // kernel reports no event for them, or the event does not name the overlay.
      this.#opened.use(
        watchRtnetlink(
          {
            groups: ["link", "neighbour", "address4", "address6", "route4", "route6"],
            passOver: (portId) => overlays.hasAsked(portId),
          },
          (event) => {
            if (this.#concerns(event)) this.#soon();
          },
          () => this.#soon(),
        ),
      );
    }
    overlays.tunnels.onEnd = (overlay, reason) => {
      log.warn({ overlay, reason }, "A tunnel has ended; reopening it");
      this.#soon();
    };
  }

  [Symbol.dispose](): void {
    this.#opened.dispose();
    clearTimeout(this.#timer);
  }

  #concerns(event: RtnetlinkEvent): boolean {
    const { overlays, wanted } = this.#parts;
    if (overlays.isDamaged(event)) return true;
    if (event.kind !== "link") return false;
    return wanted().some(
      ({ parent, sides }) =>
        event.link.name === parent ||
        sides.some(({ vtep }) => vtep !== undefined && event.link.name === vtep.device),
    );
  }

  #soon(): void {
    if (this.#timer !== undefined || this.#opened.disposed) return;
    this.#timer = setTimeout(
      guarded("overlay", () => {
        this.#timer = undefined;
        this.#parts.look();
      }),
      quietMs,
    );
    this.#timer.unref();
  }
}
