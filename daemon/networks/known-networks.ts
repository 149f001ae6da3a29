import type { Ip } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";

/** The networks there are. */
export interface KnownNetworks {
  /** Sorted by name. */
  list(): readonly NetworkDefinition[];
  /** Throws `WRONG_STATE` if a change of one of these networks prevents planning for it. */
  refuseChanging(names: readonly string[]): void;
  /**
   * The domain of pods' names, if pods of the network can ask its gateways for names. A guest that
   * was sent one of these addresses keeps it while that server is unavailable for a moment.
   */
  domainOf(name: NetworkName, reported: readonly Ip[]): string | undefined;
}
