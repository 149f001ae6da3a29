import type { Config } from "../../config/config.ts";
import { sentMtus } from "../../containers/sent-mtus.ts";
import { carriedFor } from "../../networks/sent-mtus.ts";
import type { Database } from "../../store/database.ts";
import { overlayRecord } from "../store.ts";
import { leasedSubnets } from "./leased-network.ts";
import { singleName } from "../overlay-hosts.ts";

/**
 * The configuration, with the default network as its overlay defines it: with the last lease, or
 * without a subnet. The network itself does not masquerade. The overlay does, if at all, because
 * other hosts should see the addresses of pods.
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
