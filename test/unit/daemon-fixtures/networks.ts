import { systemClock } from "../../../core/clock.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { NetworkDefinition } from "../../../daemon/config/network-definition.ts";
import { toldMtus } from "../../../daemon/containers/told-mtus.ts";
import { Networks } from "../../../daemon/networks/networks.ts";
import { openLog } from "../../../linux/log.ts";
import type { Fragment } from "../../../network/model/desired.ts";
import type { HostNetwork } from "../../../network/bridge/ensure.ts";
import { configuration, type Node } from "./node.ts";

/** Networks on a host that takes or refuses, and what it was asked for. */
export function onHost(node: Node, settled: readonly NetworkDefinition[]) {
  const host = {
    refusing: true,
    ensured: [] as Fragment[],
    removed: [] as Fragment[],
    onEnsure: (): void | Promise<unknown> => {},
  };
  const told = async (fragment: Fragment, list: Fragment[]): Promise<void> => {
    list.push(fragment);
    if (host.refusing) throw new PodnetError("NETLINK_FAILED", "The host refuses");
  };
  const networks = new Networks(
    {
      db: node.db,
      config: configuration({}),
      host: {
        ensure: async (fragment: Fragment) => {
          await host.onEnsure();
          await told(fragment, host.ensured);
        },
        remove: (fragment: Fragment) => told(fragment, host.removed),
        unforward: async () => {},
      } as unknown as HostNetwork,
      addresses: node.addresses,
      clock: systemClock,
      log: openLog({ component: "test", level: "silent" }),
      configured: "default" as never,
      onHost: true,
      resolvers: {
        settle: async () => {},
        answers: () => false,
        isWanted: () => false,
        domain: "podnet",
      },
      toldMtus: (name) => toldMtus(node.db, name),
      refit: (name) => node.pods.refit(name),
      refitPlan: () => [],
      refitText: () => [],
    },
    settled,
  );
  return { host, networks };
}
