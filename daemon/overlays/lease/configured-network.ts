import type { Config } from "../../config/config.ts";
import { sentMtus } from "../../containers/sent-mtus.ts";
import { carriedFor } from "../../networks/sent-mtus.ts";
import type { Database } from "../../store/database.ts";
import { overlayRecord } from "../store.ts";
import { leasedSubnets } from "./leased-network.ts";
import { singleName } from "../overlay-hosts.ts";

/**
 * The configuration, with the default network as its overlay has it: what was last leased for it,
 * or no subnet. What leaves it is masqueraded by the overlay, or by nobody: addresses of pods are
 * to be seen by other hosts.
 */
export function withLeasedNetwork(config: Config, db: Database): Config {
  const { overlay, network } = config;
  if (overlay === undefined || overlay.names.length > 0 || overlay.discover) return config;
  const leased = overlayRecord(db, singleName).network;
  const mtu = leased?.mtu ?? network.mtu;
  return {
    ...config,
    network: {
      ...network,
      subnets: leasedSubnets(leased?.subnets ?? []),
      mtu,
      ...carriedFor(sentMtus(db, network.name), { mtu }),
      masquerade: false,
    },
  };
}
