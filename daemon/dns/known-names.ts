import { type Ip, ipOf } from "../../core/address.ts";
import type { NetworkName, PodId, PodName } from "../../core/names.ts";
import type { Addresses } from "../ipam/addresses.ts";
import { guestOf } from "../pods/guest/guest-of.ts";
import { staying } from "../pods/store/pod-plan.ts";
import type { Database } from "../store/database.ts";
import type { HolderId } from "../store/holder.ts";
import { getUsablePod, listPodsWithMachine, podIdByName } from "../pods/store/pods.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { isNameServer } from "../pods/store/stored-plans.ts";
import type { KnownNames } from "./resolvers.ts";

/** Names of containers, by network. */
export interface NamedContainers {
  addressesOf(network: NetworkName, name: string): readonly Ip[] | undefined;
  nameAt(network: NetworkName, ip: Ip): string | undefined;
}

/**
 * Names from rows, and the names that runtimes gave to containers: a pod of such a name comes
 * first.
 */
export function knownNames(
  db: Database,
  addresses: Addresses,
  containers: NamedContainers,
): KnownNames {
  /** A container has no such row: it has no name here, and asks only through its own network. */
  const podOf = (id: HolderId): PodRow | undefined => getUsablePod(db, id as PodId);
  const holderAt: KnownNames["holderAt"] = (network, ip) => addresses.holderAt(network, ip);
  return {
    addressesOf(network, pod) {
      const id = podIdByName(db, pod as PodName);
      const row = id === undefined ? undefined : getUsablePod(db, id);
      const found = row !== undefined && runs(row) ? addressesOn(row, network) : undefined;
      return found ?? containers.addressesOf(network, pod);
    },
    nameAt(network, ip) {
      const id = holderAt(network, ip);
      const row = id === undefined ? undefined : podOf(id);
      return row !== undefined && runs(row) && addressesOn(row, network)?.includes(ip) === true
        ? row.name
        : containers.nameAt(network, ip);
    },
    holderAt,
    networksOf(holder) {
      const { interfaces = [] } = podOf(holder)?.plan ?? {};
      return [...new Set(staying(interfaces).flatMap(({ network }) => network ?? []))];
    },
    hasClients: (network) =>
      listPodsWithMachine(db).some(
        (row) => !guestOf(row.plan).hasAgent && addressesOn(row, network) !== undefined,
      ),
    isSent: (servers) => servers.some((server) => isNameServer(db, server)),
  };
}

/** Paused ones are there too. */
const runs = ({ state }: PodRow): boolean => state === "running" || state === "paused";

/** Undefined for a pod that is not on the network. */
function addressesOn({ plan }: PodRow, network: NetworkName): readonly Ip[] | undefined {
  const there = staying(plan.interfaces).filter((each) => each.network === network);
  return there.length === 0 ? undefined : there.flatMap((each) => each.addresses.map(ipOf));
}
