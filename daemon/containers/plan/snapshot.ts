import type { Cidr, Ip, IpPrefix, Mac } from "../../../core/address.ts";
import type { NetworkDefinition } from "../../config/network-definition.ts";
import type { PortsSnapshot } from "../../published/ports-snapshot.ts";
import type { AddressStatus } from "../../ipam/addresses.ts";
import type { CniSettings } from "../../config/cni.ts";
import type { AttachmentId } from "../../store/holder.ts";

/** What the planner of an attachment may know of the world, gathered beforehand. Plain data. */
export interface AttachmentSnapshot {
  /** The id it will have. */
  readonly id: AttachmentId;
  readonly network: Omit<NetworkDefinition, "subnets">;
  readonly subnets: readonly FreeSubnet[];
  /** What is known of addresses that are asked for. */
  readonly asked: Readonly<Record<Ip, AddressStatus>>;
  /** Ports that the bridge has. */
  readonly ports: number;
  /** Who has the MAC that is asked for, as messages say it. */
  readonly macHolder?: string;
  /** An unused MAC; only where the MAC made of the address is taken. */
  readonly drawnMac?: Mac;
  /** What names of pods end with, where the network's gateways answer for them. */
  readonly domain?: string;
  /** Of the host, where ports are asked for. */
  readonly hostPorts?: PortsSnapshot;
  readonly settings: Pick<CniSettings, "mtu" | "serviceCidr">;
}

export interface FreeSubnet {
  readonly cidr: Cidr;
  readonly gateway: IpPrefix;
  /** The address that one who asks for none gets; undefined when there is none left. */
  readonly next: Ip | undefined;
}
