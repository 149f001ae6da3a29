import type { Cidr } from "../../core/address.ts";
import { toPodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { Overlap } from "../../network/bridge/overlap.ts";

export interface SharedSubnetParts {
  readonly log: Pick<Log, "warn">;
  readonly overlay: string;
  /** Addresses of these subnets on links that are not podnet's. */
  readonly foreignAddresses: (subnets: readonly Cidr[]) => Promise<readonly Overlap[]>;
}

/**
 * Whether other links of the host have addresses of the subnet that is this host's: a bridge that a
 * container engine made from flannel's `subnet.env`, most likely, where podnetd took flanneld's
 * place. The kernel then has two ways to the subnet.
 */
export class SharedSubnet {
  readonly #parts: SharedSubnetParts;
  #troubles: readonly string[] = [];
  #looking: Promise<void> | undefined;

  constructor(parts: SharedSubnetParts) {
    this.#parts = parts;
  }

  /** Other links with addresses of the subnets, one line each, as of the last look. */
  get troubles(): readonly string[] {
    return this.#troubles;
  }

  /**
   * Looks at the host; calls at one time share a look. What cannot be seen is logged, and is seen
   * by a later look.
   */
  look(subnets: readonly Cidr[]): Promise<void> {
    this.#looking ??= this.#look(subnets).finally(() => (this.#looking = undefined));
    return this.#looking;
  }

  async #look(subnets: readonly Cidr[]): Promise<void> {
    const { log, overlay, foreignAddresses } = this.#parts;
    try {
      const found = subnets.length === 0 ? [] : await foreignAddresses(subnets);
      const before = this.#troubles;
      this.#troubles = found.map(sharedText);
      for (const trouble of this.#troubles)
        if (!before.includes(trouble)) log.warn({ overlay }, trouble);
    } catch (thrown) {
      log.warn({ overlay, err: toPodnetError(thrown) }, "Failed to list the host's addresses");
    }
  }
}

const sharedText = ({ subnet, with: what }: Overlap): string =>
  `this host's subnet ${subnet} is on another link, too: ${what}; remove that link once nothing uses it, or packets to pods may leave by it`;
