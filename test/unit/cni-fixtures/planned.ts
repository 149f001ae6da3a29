import type { CniPort } from "../../../cni/protocol/capabilities.ts";
import type { Cidr, Ip, IpPrefix, Mac } from "../../../core/address.ts";
import type { IfName, NetworkName } from "../../../core/names.ts";
import type { AttachmentPlan } from "../../../daemon/containers/attachment-plan.ts";
import { type Attaching, planAttachment } from "../../../daemon/containers/plan/plan.ts";
import type { AttachmentSnapshot, FreeSubnet } from "../../../daemon/containers/plan/snapshot.ts";
import { wishesOf } from "../../../daemon/containers/cni/wishes.ts";
import type { PortsSnapshot } from "../../../daemon/published/ports-snapshot.ts";
import type { AttachmentId } from "../../../daemon/store/holder.ts";
import { addRequest } from "./add-request.ts";

export const id = "aaaaaaaaaaaa" as AttachmentId;
export const four: FreeSubnet = {
  cidr: "10.77.0.0/24" as Cidr,
  gateway: "10.77.0.1/24" as IpPrefix,
  next: "10.77.0.2" as Ip,
};
export const six: FreeSubnet = {
  cidr: "fd77::/64" as Cidr,
  gateway: "fd77::1/64" as IpPrefix,
  next: "fd77::c0a8:5" as Ip,
};
export const network: AttachmentSnapshot["network"] = {
  name: "blue" as NetworkName,
  bridge: "pn-blue" as IfName,
  mtu: 1450,
  dns: ["9.9.9.9" as Ip],
  dnsSearch: ["example.org"],
  masquerade: true,
  isolated: false,
  vlanFiltering: false,
  mayOverlap: false,
};
export const hostPorts: PortsSnapshot = {
  taken: [],
  range: { first: 32_768, last: 60_999 },
  start: 0,
  bound: [],
  hostAddresses: { "0.0.0.0": true, "::": true, "127.0.0.1": true, "192.0.2.1": true } as never,
  firewall: true,
};
const usual: AttachmentSnapshot = {
  id,
  network,
  subnets: [four],
  asked: {},
  ports: 0,
  hostPorts,
  settings: { mtu: undefined, serviceCidr: undefined },
};
export const dual = { subnets: [four, six] };

type Asked = Parameters<typeof addRequest>[0];

/** What is asked for, of which world beside the usual one. */
export interface Case {
  readonly asked?: Asked;
  readonly args?: Readonly<Record<string, string>>;
  readonly snapshot?: Partial<AttachmentSnapshot>;
  readonly attaching?: Attaching;
}

export function planned({ asked, args = {}, snapshot, attaching }: Case): AttachmentPlan {
  const request = addRequest(asked, { args });
  return planAttachment(request, wishesOf(request), { ...usual, ...snapshot }, attaching);
}

export const ips = (...texts: string[]) => ({ capabilities: { ips: texts as Ip[] } });
export const port = (more: Partial<CniPort> = {}): CniPort => ({
  hostPort: 8080,
  containerPort: 80,
  protocol: "tcp",
  ...more,
});
export const ports = (...portMappings: CniPort[]) => ({ capabilities: { portMappings } });
/** A MAC to ask for. */
export const given = "02:00:00:00:00:09" as Mac;
