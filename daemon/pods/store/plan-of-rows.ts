import {
  type Ip,
  type IpPrefix,
  type Mac,
  withLength,
  familyBits,
  familyOf,
} from "../../../core/address.ts";
import type { IfName, NetworkName } from "../../../core/names.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";
import { mark, type PortDesired } from "../../../network/model/desired.ts";
import type { Database } from "../../store/database.ts";
import { getNetwork } from "../../networks/store.ts";
import type { DamagedPod } from "./pod-rows.ts";
import { integer, text } from "../../store/rows.ts";
import { type InterfacePlan, type PodPlan, planVersion } from "./pod-plan.ts";

/**
 * A plan to take a pod down by whose own makes no sense, of what rows beside its own say: the addresses it holds, and its taps on
 * networks of podnet's. Taps elsewhere may be somebody else's, and end with the machine where they are not.
 */
export function planOfRows(db: Database, { id, name }: DamagedPod, vm: VmPlan): PodPlan {
  const interfaces = leasedTo(db, id);
  return {
    version: planVersion,
    podId: id,
    name,
    vm,
    argv: [],
    interfaces,
    ports: { kind: "pod", key: id, ports: portsOf(db, id, interfaces), published: [] },
    guest: { requestId: id, interfaces: [], routes: [], neighbours: [], waitMs: 0 },
  };
}

function leasedTo(db: Database, id: string): InterfacePlan[] {
  const rows = db.all(
    `SELECT network, address, owner_id FROM leases
     WHERE owner_kind = 'pod' AND owner_id LIKE ? || '/%' AND freed_ms IS NULL`,
    id,
  );
  return rows.map((row) => {
    const address = text<Ip>(row, "address");
    return {
      position: Number(text(row, "owner_id").slice(id.length + 1)),
      network: text<NetworkName>(row, "network"),
      addresses: [withLength(address, familyBits(familyOf(address)))],
      gateways: [],
      mtu: leastMtu,
      guestName: "" as IfName,
    };
  });
}

/** Nothing is made by these ports: no MTU of theirs is ever set. */
const leastMtu = 1280;

function portsOf(db: Database, id: string, leased: readonly InterfacePlan[]): PortDesired[] {
  const rows = db.all(
    `SELECT position, network, tap, mac FROM interfaces
     WHERE pod_id = ? AND network IS NOT NULL AND tap IS NOT NULL AND mac IS NOT NULL`,
    id,
  );
  return rows.flatMap((row) => {
    const position = integer(row, "position");
    const network = getNetwork(db, text<NetworkName>(row, "network"));
    if (network === undefined) return [];
    const guestAddresses: readonly IpPrefix[] = leased
      .filter((each) => each.position === position)
      .flatMap(({ addresses }) => addresses);
    return {
      tap: text<IfName>(row, "tap"),
      bridge: network.definition.bridge,
      guestMac: text<Mac>(row, "mac"),
      guestAddresses,
      alias: `${mark.alias}pod:${id}:${position}`,
      isolated: false,
      mtu: leastMtu,
    };
  });
}
