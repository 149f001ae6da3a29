import { familyBits, familyOf, type Ip, type Mac, withLength } from "../../core/address.ts";
import type { IfName, NetworkName } from "../../core/names.ts";
import type { AttachmentRow, DamagedAttachment } from "./attachment-rows.ts";
import type { Database } from "../store/database.ts";
import { leasedTo } from "../ipam/store.ts";
import { getNetwork } from "../networks/store.ts";
import { attachmentPlanVersion } from "./attachment-plan.ts";

/** The least MTU of IPv6. Nothing is made by such a plan. */
const leastMtu = 1280;
const noMac = "00:00:00:00:00:00" as Mac;

/**
 * A row by which a damaged attachment is removed: its links by their names and mark, its addresses
 * by their leases, its rules by its id. The plan in it is only for the removal, and is never
 * written.
 */
export function remainsOf(db: Database, row: DamagedAttachment): AttachmentRow {
  const { id, containerId, ifName, config, network, netns, mac = noMac } = row;
  const addresses = leasedTo(db, network, { kind: "attachment", id }).map(wholeAddress);
  return {
    ...row,
    changedMs: row.createdMs,
    plan: {
      version: attachmentPlanVersion,
      id,
      containerId,
      ifName,
      config,
      network,
      netns,
      ...(row.hostLink === undefined ? {} : { hostVeth: row.hostLink }),
      bridge: bridgeOf(db, network),
      mac,
      addresses,
      mtu: leastMtu,
      gateways: [],
      // Whether it had rules is not known: they are looked for.
      published: [],
      dns: { nameservers: [], search: [], options: [] },
    },
  };
}

const wholeAddress = (ip: Ip) => withLength(ip, familyBits(familyOf(ip)));

const bridgeOf = (db: Database, network: NetworkName): IfName =>
  getNetwork(db, network)?.definition.bridge ?? ("" as IfName);
