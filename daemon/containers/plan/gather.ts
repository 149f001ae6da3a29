import { contains, type Mac, macFromRandom } from "../../../core/address.ts";
import { podIdFromBytes } from "../../../core/names.ts";
import type { Config } from "../../config/config.ts";
import type { Addresses } from "../../ipam/addresses.ts";
import { named } from "../../pods/plan/gather-networks.ts";
import type { KnownNetworks } from "../../networks/known-networks.ts";
import { gatherPorts } from "../../published/gather-ports.ts";
import { containerOf } from "../../ipam/holders.ts";
import { containerByMac } from "../../ipam/holders.ts";
import type { AttachmentId } from "../../store/holder.ts";
import type { Database } from "../../store/database.ts";
import { countInterfaces, podByMac } from "../../pods/store/interfaces.ts";
import { podNameById } from "../../pods/store/pods.ts";
import { rangesOf } from "./choose-addresses.ts";
import { madeMac } from "./choose-mac.ts";
import { forwarderSpecs } from "../plan-loopback.ts";
import type { AttachmentSnapshot, FreeSubnet } from "./snapshot.ts";
import type { AttachmentRequest } from "../cni/attachment-request.ts";

export interface AttachmentWorld {
  readonly db: Database;
  readonly config: Config;
  readonly addresses: Addresses;
  readonly networks: KnownNetworks & {
    find(name: string): ReturnType<KnownNetworks["list"]>[number];
  };
  randomBytes(count: number): Uint8Array;
}

/**
 * Looks at everything the planner needs to know for this request. Takes nothing and changes
 * nothing. Throws `NETWORK_NOT_FOUND`, `WRONG_STATE`, `OVERLAY_NOT_READY`, `ADDRESS_OUT_OF_RANGE`.
 */
export function gatherAttachment(
  request: AttachmentRequest,
  world: AttachmentWorld,
): AttachmentSnapshot {
  const { db, config, addresses, networks } = world;
  const { config: asked, ips, ports } = request;
  const network = networks.find(asked.network ?? config.network.name);
  networks.refuseChanging([network.name]);
  const within = rangesOf(asked.capabilities.ipRanges, network.subnets);
  const domain = networks.domainOf(network.name, []);
  const subnets = network.subnets.map(({ cidr, gateway }) => {
    const next = addresses.nextWithin(network.name, cidr, within(cidr));
    return { cidr, gateway, next };
  });
  return {
    id: freshId(world),
    network,
    subnets,
    asked: Object.fromEntries(
      ips
        .filter((ip) => network.subnets.some(({ cidr }) => contains(cidr, ip)))
        .map((ip) => [ip, named(addresses.status(network.name, ip), db)]),
    ),
    ports: countInterfaces(db, network.name),
    ...macSnapshot(request, subnets, world),
    ...(domain === undefined ? {} : { domain }),
    ...(ports.length === 0
      ? {}
      : {
          hostPorts: gatherPorts(
            asked.portsHeldByRuntime ? [...ports, ...forwarderSpecs(ports)] : ports,
            world,
          ),
        }),
    settings: config.cni,
  };
}

/** (The MAC is made of the first subnet's address: `chooseAddresses`.) */
function macSnapshot(
  { mac, ips }: AttachmentRequest,
  [first]: readonly FreeSubnet[],
  { db, randomBytes }: AttachmentWorld,
): Pick<AttachmentSnapshot, "macHolder" | "drawnMac"> {
  if (mac !== undefined) {
    const macHolder = holderOf(mac, db);
    return macHolder === undefined ? {} : { macHolder };
  }
  const ip = ips.find((each) => first !== undefined && contains(first.cidr, each)) ?? first?.next;
  if (ip === undefined || holderOf(madeMac(ip), db) === undefined) return {};
  for (;;) {
    const drawnMac = macFromRandom(randomBytes(4));
    if (holderOf(drawnMac, db) === undefined) return { drawnMac };
  }
}

function holderOf(mac: Mac, db: Database): string | undefined {
  const pod = podByMac(db, mac);
  if (pod !== undefined) return `pod "${podNameById(db, pod) ?? pod}"`;
  const container = containerByMac(db, mac);
  return container === undefined ? undefined : `container "${container}"`;
}

/** An id that no attachment has. */
function freshId({ db, randomBytes }: AttachmentWorld): AttachmentId {
  for (;;) {
    const id = podIdFromBytes(randomBytes(12)) as string as AttachmentId;
    if (containerOf(db, id) === undefined) return id;
  }
}
