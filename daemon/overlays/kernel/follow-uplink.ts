import type { Family } from "../../../core/address.ts";
import { type PodnetError, toPodnetError } from "../../../core/errors.ts";
import { guard, guarded } from "../../../core/guard.ts";
import { type RtnetlinkWatch, watchRtnetlink } from "../../../linux/netlink/rtnetlink-events.ts";
import { Rtnetlink } from "../../../linux/netlink/rtnetlink-socket.ts";
import type { RtnetlinkEvent } from "../../../linux/rtnetlink/event.ts";
import type { InterfaceChoice } from "../../config/overlay.ts";
import { chooseUplink, isDefault, sameUplink, type Uplink } from "./choose-uplink.ts";
import { observeHostLinks } from "./host-links.ts";

export interface UplinkFollowing {
  readonly choice: InterfaceChoice;
  /** The families of the overlay's configuration. */
  readonly families: readonly Family[];
  /**
   * How long the host's links must be unchanged before a change counts, in milliseconds. Default:
   * one second. A restarted network loses its addresses and gets them again: the lease should not
   * move for that.
   */
  readonly quietMs?: number;
  /** Called with the first interface, and at each change. */
  readonly onUplink: (uplink: Uplink) => void;
  /**
   * There is no interface: the previous one is kept until there is one. Called once for each
   * reason.
   */
  readonly onTrouble: (trouble: PodnetError) => void;
}

/** The longest wait for the host's links to stop changing, as a multiple of `quietMs`. */
const longestWait = 5;

/**
 * Knows the interface for traffic to other hosts, and follows it as addresses, links and routes of
 * the host change: the holder of a lease then moves the lease (`LeaseDriver.become`). Works in the
 * network namespace of the calling thread. Does not keep the process alive.
 */
export class UplinkFollower implements AsyncDisposable {
  readonly #options: UplinkFollowing;
  readonly #netlink: Rtnetlink;
  readonly #watch: RtnetlinkWatch;
  #uplink: Uplink | undefined;
  #trouble: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #changingSince: number | undefined;
  #looking: Promise<void> = Promise.resolve();
  #closed = false;

  /** Call `look` for the first choice; later changes are followed. */
  constructor(options: UplinkFollowing) {
    this.#options = options;
    using opened = new DisposableStack();
    const netlink = opened.use(Rtnetlink.open());
    this.#watch = watchRtnetlink(
      { groups: ["link", "address4", "address6", "route4", "route6"] },
      (event) => {
        if (this.#matters(event)) this.#lookSoon();
      },
      () => this.#lookSoon(),
    );
    this.#netlink = netlink;
    opened.move();
  }

  /** The one that is used; it may have gone since. */
  get uplink(): Uplink | undefined {
    return this.#uplink;
  }

  /** Looks at once, and returns the interface; undefined if there is none. Never throws. */
  look(): Promise<Uplink | undefined> {
    this.#looking = this.#looking.then(() => guard("overlay", () => this.#look()));
    return this.#looking.then(() => this.#uplink);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#watch.close();
    await this.#looking;
    this.#netlink.close();
  }

  async #look(): Promise<void> {
    if (this.#closed) return;
    const { choice, families, onUplink, onTrouble } = this.#options;
    try {
      const host = await observeHostLinks(this.#netlink, choice.canReach);
      const found = chooseUplink(choice, host, families);
      this.#trouble = undefined;
      if (this.#closed || (this.#uplink !== undefined && sameUplink(this.#uplink, found))) return;
      this.#uplink = found;
      onUplink(found);
    } catch (thrown) {
      const error = toPodnetError(thrown);
      const text = `${error.code} ${String(error.details["tried"] ?? error.message)}`;
      if (this.#closed || text === this.#trouble) return;
      this.#trouble = text;
      onTrouble(error);
    }
  }

  /**
   * Whether an event can change the choice. Taps and peers' routes change by the hundred, and none
   * of them leads to another host.
   */
  #matters(event: RtnetlinkEvent): boolean {
    switch (event.kind) {
      case "address":
        return true;
      case "route":
        return isDefault(event.route.destination) || this.#options.choice.canReach !== undefined;
      case "link":
        return (
          this.#uplink === undefined ||
          event.link.index === this.#uplink.index ||
          this.#options.choice.interfaces.includes(event.link.name)
        );
      default:
        return false;
    }
  }

  /** Looks when nothing has changed for a while, or when changes have continued for too long. */
  #lookSoon(): void {
    const { quietMs = 1000 } = this.#options;
    const now = performance.now();
    this.#changingSince ??= now;
    if (now - this.#changingSince > quietMs * longestWait && this.#timer !== undefined) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      guarded("overlay", () => {
        this.#timer = undefined;
        this.#changingSince = undefined;
        return this.look();
      }),
      quietMs,
    ).unref();
  }
}
