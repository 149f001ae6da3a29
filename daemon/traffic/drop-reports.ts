import type { Refusal } from "../../network/firewall/nftables/refusals.ts";
import type { Drop } from "../../network/firewall/nftables/drops.ts";

/** Packets of one kind that were dropped or refused at a port, since the port was made. */
export type CountedDrop = Drop | Refusal;

/** What a report names of it; another version of podnet may know further kinds. */
type Reported = Pick<CountedDrop, "link" | "packets"> & { readonly kind: string };

/** Between two reports about one owner of ports, milliseconds. */
const betweenReportsMs = 60_000;

/**
 * What every Linux sends where it is not answered: routers that it looks for, groups that it
 * reports. It is counted, and not reported.
 */
const ordinary: ReadonlySet<CountedDrop["kind"]> = new Set(["no-ipv6"]);

/**
 * Chooses what to report of what the kernel has counted: each kind once for as long as its port
 * lives, and for each owner of ports at most once a minute. So reports of a guest are bounded,
 * whatever it sends.
 */
export class DropReports {
  /** By port and kind: the packets there were when it was reported. */
  readonly #reported = new Map<string, number>();
  /** By owner: when something was reported last, monotonic milliseconds. */
  readonly #lastMs = new Map<string, number>();

  /** Something was reported: now, or by an earlier podnetd. */
  note(owner: string, drops: readonly Reported[], nowMs: number): void {
    for (const drop of drops) this.#reported.set(keyOf(drop), drop.packets);
    this.#lastMs.set(owner, nowMs);
  }

  /**
   * What is to be reported now, by owner, of all that is counted. What has to wait is in the next
   * answer after its minute. An owner is undefined for ports without owner.
   */
  due(
    counted: readonly CountedDrop[],
    ownerOf: (link: string) => string | undefined,
    nowMs: number,
  ): ReadonlyMap<string, readonly CountedDrop[]> {
    this.#forget(counted, nowMs);
    const due = new Map<string, CountedDrop[]>();
    for (const drop of counted) {
      if (ordinary.has(drop.kind) || this.#reported.has(keyOf(drop))) continue;
      const owner = ownerOf(drop.link);
      if (owner === undefined || this.#lastMs.has(owner)) continue;
      due.set(owner, [...(due.get(owner) ?? []), drop]);
    }
    return due;
  }

  /** A port that has gone, or was made anew, begins at zero. */
  #forget(counted: readonly CountedDrop[], nowMs: number): void {
    const now = new Map(counted.map((drop) => [keyOf(drop), drop.packets]));
    for (const [key, packets] of this.#reported)
      if ((now.get(key) ?? 0) < packets) this.#reported.delete(key);
    for (const [owner, atMs] of this.#lastMs)
      if (nowMs - atMs >= betweenReportsMs) this.#lastMs.delete(owner);
  }
}

const keyOf = ({ link, kind }: Reported): string => `${link} ${kind}`;
