import { contains } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Database } from "../store/database.ts";
import { listLeases } from "../ipam/store.ts";
import { containersOnNetwork, podsOnNetwork, servicesOnNetwork } from "./store.ts";
import type { SentMtu } from "./sent-mtus.ts";
import {
  carried,
  type NetworkDefinition,
  type SubnetDefinition,
} from "../config/network-definition.ts";

/**
 * Refuses updates that pods and containers prevent: a subnet can go only while none of its
 * addresses is held, and the MTU, or at least the bridge's, has to stay as large as that of any
 * interface (`reported`). Throws `NETWORK_IN_USE`, `MTU_OUT_OF_RANGE`.
 */
export function refuseUpdate(
  db: Database,
  reported: readonly SentMtu[],
  before: NetworkDefinition,
  after: NetworkDefinition,
): void {
  const gone = goneSubnets(before, after).find(
    (subnet) => heldIn(db, before, subnet) !== undefined,
  );
  if (gone !== undefined) throw inUse(db, before, gone);
  const most = carried(after);
  if (most < carried(before)) refuseSmaller(reported, { ...after, mtu: most });
}

/** The subnets that only the first definition has, or that have another gateway in the second. */
export const goneSubnets = (
  before: NetworkDefinition,
  after: NetworkDefinition,
): SubnetDefinition[] =>
  before.subnets.filter(({ gateway }) => after.subnets.every((each) => each.gateway !== gateway));

/** A held address of a subnet. */
export function heldIn(
  db: Database,
  { name }: NetworkDefinition,
  { cidr }: SubnetDefinition,
): string | undefined {
  return listLeases(db, name).find(
    ({ address, freedMs }) => freedMs === undefined && contains(cidr, address),
  )?.address;
}

function inUse(db: Database, { name }: NetworkDefinition, { cidr }: SubnetDefinition): PodnetError {
  const users = usersOnNetwork(db, name).slice(0, 8).join(", ");
  return new PodnetError("NETWORK_IN_USE", `Addresses of ${cidr} are held on network "${name}"`, {
    field: "subnets",
    hint: `Delete what is on it first (${users}), or leave this subnet as it is`,
    details: { network: name, subnet: cidr, pods: users },
  });
}

function refuseSmaller(reported: readonly SentMtu[], { name, mtu }: NetworkDefinition): void {
  const larger = reported.find((each) => each.mtu > mtu);
  if (larger === undefined) return;
  const details = { network: name, [larger.kind]: larger.name, mtu: larger.mtu };
  const [has, otherwise] =
    larger.kind === "pod"
      ? [
          `Pod "${larger.name}" has interface "${larger.guestName}" with an MTU`,
          "or that interface a smaller one first",
        ]
      : [`Container "${larger.name}" has an MTU`, "or end that container first"];
  throw new PodnetError("MTU_OUT_OF_RANGE", `${has} of ${larger.mtu} on network "${name}"`, {
    field: "mtu",
    hint: `Give the network ${larger.mtu} or more, ${otherwise}`,
    details,
  });
}

/** Why the configured network is neither changed nor deleted by API. */
export const configuredError = ({ name }: NetworkDefinition): PodnetError =>
  new PodnetError("WRONG_STATE", `Network "${name}" is the one of podnetd's configuration`, {
    field: "name",
    hint: "Change [network] in its configuration file and restart podnetd",
    details: { network: name },
  });

/** Why one that follows an overlay is neither changed nor deleted by API. */
export const leasedError = ({ name }: NetworkDefinition): PodnetError =>
  new PodnetError("WRONG_STATE", `Network "${name}" is that of an overlay`, {
    field: "name",
    hint: "Change the overlay's configuration in etcd, or have this host leave it: podnet overlay leave",
    details: { network: name },
  });

/**
 * Refuses to delete a network that pods, containers or services use. Throws `NETWORK_IN_USE`,
 * naming them.
 */
export function refuseInUse(db: Database, { name }: NetworkDefinition): void {
  const pods = podsOnNetwork(db, name);
  const containers = containersOnNetwork(db, name);
  const services = servicesOnNetwork(db, name);
  const count = pods.length + containers.length + services.length;
  if (count === 0) return;
  const used = [
    ...someOf("pod", pods),
    ...someOf("container", containers),
    ...someOf("service", services),
  ].join(" and ");
  throw new PodnetError("NETWORK_IN_USE", `Network "${name}" is used by ${used}`, {
    field: "name",
    hint: "Delete those pods and services and end those containers, or take pods' interfaces off the network",
    details: {
      network: name,
      pods: [...pods, ...containers].slice(0, 8).join(", "),
      count,
    },
  });
}

/** The first eight names, for messages; empty if there are none. */
function someOf(what: string, names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const more = names.length > 8 ? `, and ${names.length - 8} more` : "";
  return [`${what}${names.length === 1 ? "" : "s"} ${names.slice(0, 8).join(", ")}${more}`];
}

/** Names of the pods and ids of the containers on a network. */
export const usersOnNetwork = (db: Database, name: NetworkName): string[] => [
  ...podsOnNetwork(db, name),
  ...containersOnNetwork(db, name),
];
