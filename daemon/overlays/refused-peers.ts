import type { Log } from "../../linux/log.ts";
import type { RefusedPeer } from "../../network/overlay/wanted.ts";

/** So many are named in a trouble, and logged at a time. */
const few = 5;

/**
 * Hosts that leases name and that get no routes: each is logged once for as long as it is refused
 * for one reason.
 */
export class RefusedPeers {
  readonly #log: Pick<Log, "warn">;
  readonly #overlay: string;
  #known = new Set<string>();

  constructor(overlay: string, log: Pick<Log, "warn">) {
    this.#overlay = overlay;
    this.#log = log;
  }

  /** Sets the peers that are refused. */
  follow(refused: readonly RefusedPeer[]): void {
    if (refused.length + this.#known.size === 0) return;
    const now = new Set(refused.map(textOf));
    const added = [...now].filter((text) => !this.#known.has(text));
    this.#known = now;
    if (added.length === 0) return;
    this.#log.warn(
      { overlay: this.#overlay, refused: now.size, hosts: added.slice(0, few) },
      "Leases of other hosts are refused: no packet is sent there",
    );
  }

  /** The refused hosts with the reasons, in one line; empty if there are none. */
  get troubles(): readonly string[] {
    const { size } = this.#known;
    if (size === 0) return [];
    const named = [...this.#known].slice(0, few).join("; ");
    const more = size > few ? `; and ${size - few} more` : "";
    const leases = size === 1 ? "a lease of another host is" : `${size} leases of other hosts are`;
    return [`${leases} refused: ${named}${more}`];
  }
}

const textOf = ({ peer, reason }: RefusedPeer): string =>
  `${peer.subnet} at ${peer.publicIp}: ${reason}`;
