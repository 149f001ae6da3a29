import type { Ip } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";

/** The networks there are. */
export interface KnownNetworks {
  /** By name. */
  list(): readonly NetworkDefinition[];
  /**
   * Throws `WRONG_STATE` when one of these is being changed so that nothing can be planned for it.
   */
  refuseChanging(names: readonly string[]): void;
  /**
   * What names of pods end with, where pods of a network can ask its gateways for names. A guest
   * that was told to ask one of these is not told otherwise because it cannot be asked for a
   * moment.
   */
  domainOf(name: NetworkName, reported: readonly Ip[]): string | undefined;
}
