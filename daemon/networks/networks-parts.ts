import type { Clock } from "../../core/clock.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { PluggedFragment } from "../../network/model/desired.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Addresses } from "../ipam/addresses.ts";
import type { KnownNetworks } from "./known-networks.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { GatewayNamesParts } from "./gateway-names.ts";
import type { FirewallConfig } from "./network-fragment.ts";
import type { SentMtu } from "./sent-mtus.ts";

/** Longest the host may take for a network, milliseconds. */
export const hostMs = 60_000;

export interface NetworksParts extends GatewayNamesParts {
  readonly config: FirewallConfig;
  readonly host: HostNetwork;
  readonly addresses: Addresses;
  readonly clock: Clock;
  readonly log: Log;
  /** The configured one. */
  readonly configured: NetworkName;
  /** The MTUs that pods and containers on a network were given, and keep. */
  sentMtus(name: NetworkName): readonly SentMtu[];
  /**
   * Brings the ports of pods and containers, and the name servers of pods, up to what their network
   * is now.
   */
  follow(name: NetworkName): Promise<void>;
  /** The ports as the definition would change them. */
  changedPorts(definition: NetworkDefinition): readonly PluggedFragment[];
  /** Which guests that would send which name servers, with these networks, a line each. */
  changedServersText(name: NetworkName, networks: KnownNetworks): readonly string[];
}

/** How a network was asked for. */
export interface Asked {
  /** Accepts subnets that overlap existing ones. */
  readonly force: boolean;
}
