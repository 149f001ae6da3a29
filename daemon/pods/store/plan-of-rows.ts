import { type Ip, type Mac, withLength, familyBits, familyOf } from "../../../core/address.ts";
import type { IfName, NetworkName } from "../../../core/names.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";
import type { Database } from "../../store/database.ts";
import { getNetwork } from "../../networks/store.ts";
import type { DamagedPod } from "./pod-rows.ts";
import { integer, text } from "../../store/rows.ts";
import { type InterfacePlan, type PodPlan, planVersion } from "./pod-plan.ts";

/**
 * A plan to take down a pod whose own plan is unreadable, made of the rows alongside it: the
 * addresses that the pod holds, and its taps on podnet's networks. Other taps may be foreign;
 * podnet's own end with the machine.
 */
export function planOfRows(db: Database, { id, name }: DamagedPod, vm: VmPlan): PodPlan {
  const leased = leasedTo(db, id);
  const withTap = tapsOf(db, id, leased);
  const known = new Set(withTap.map(({ position }) => position));
  return {
    version: planVersion,
    podId: id,
    name,
    vm,
    interfaces: [...withTap, ...leased.filter(({ position }) => !known.has(position))],
    routes: [],
    // The host may have rules for it.
    withdrawn: [],
  };
}

/** Values of an interface that are unknown, and not needed to remove it. */
const unknown = { addresses: [], gateways: [], mtu: 1280, guestName: "" as IfName };

function leasedTo(db: Database, id: string): InterfacePlan[] {
  const rows = db.all(
    `SELECT network, address, owner_id FROM leases
     WHERE owner_kind = 'pod' AND owner_id LIKE ? || '/%' AND freed_ms IS NULL`,
    id,
  );
  return rows.map((row) => {
    const address = text<Ip>(row, "address");
    return {
      ...unknown,
      position: Number(text(row, "owner_id").slice(id.length + 1)),
      network: text<NetworkName>(row, "network"),
      addresses: [withLength(address, familyBits(familyOf(address)))],
    };
  });
}

function tapsOf(db: Database, id: string, leased: readonly InterfacePlan[]): InterfacePlan[] {
  const rows = db.all(
    `SELECT position, network, tap, mac FROM interfaces
     WHERE pod_id = ? AND network IS NOT NULL AND tap IS NOT NULL AND mac IS NOT NULL`,
    id,
  );
  return rows.flatMap((row) => {
    const position = integer(row, "position");
    const network = getNetwork(db, text<NetworkName>(row, "network"))?.definition;
    if (network === undefined) return [];
    const tap = text<IfName>(row, "tap");
    const nic = { nicId: "", netdevId: "", fdName: "", slot: 0, tap, mac: text<Mac>(row, "mac") };
    const addresses = leased
      .filter((each) => each.position === position)
      .flatMap((each) => each.addresses);
    return { ...unknown, position, network: network.name, bridge: network.bridge, addresses, nic };
  });
}
