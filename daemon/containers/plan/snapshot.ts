import type { Cidr, Ip, IpPrefix, Mac } from "../../../core/address.ts";
import type { NetworkDefinition } from "../../config/network-definition.ts";
import type { PortsSnapshot } from "../../published/ports-snapshot.ts";
import type { AddressStatus } from "../../ipam/addresses.ts";
import type { CniSettings } from "../../config/cni.ts";
import type { AttachmentId } from "../../store/holder.ts";

/** The state that the planner of an attachment decides by, gathered beforehand. Plain data. */
export interface AttachmentSnapshot {
  /** The id it will have. */
  readonly id: AttachmentId;
  readonly network: Omit<NetworkDefinition, "subnets">;
  readonly subnets: readonly FreeSubnet[];
  /** The status of the requested addresses. */
  readonly asked: Readonly<Record<Ip, AddressStatus>>;
  /** Ports that the bridge has. */
  readonly ports: number;
  /** The holder of the requested MAC, as messages name it. */
  readonly macHolder?: string;
  /** An unused MAC; only where the MAC made of the address is taken. */
  readonly drawnMac?: Mac;
  /** The domain of pod names, where the network's gateways answer for them. */
  readonly domain?: string;
  /** The host's ports, where the request has ports. */
  readonly hostPorts?: PortsSnapshot;
  readonly settings: Pick<CniSettings, "mtu" | "serviceCidr">;
}

export interface FreeSubnet {
  readonly cidr: Cidr;
  readonly gateway: IpPrefix;
  /** The address that a request without one gets; undefined when the subnet is full. */
  readonly next: Ip | undefined;
}
