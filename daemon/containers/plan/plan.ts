import type { CniBandwidth } from "../../../cni/protocol/capabilities.ts";
import { familyOf, type Ip, ipOf, parseCidr } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type IfName, parseIfName } from "../../../core/names.ts";
import type {
  AttachmentFragment,
  Bandwidth,
  RateLimit,
  RouteDesired,
} from "../../../network/containers/desired.ts";

import { attachmentMark } from "../../../network/model/ownership.ts";
import { checkPortRoom } from "../../../network/model/port-limit.ts";
import { planPublished, publishedDesired } from "../../published/plan-published.ts";
import { containerWords } from "../../published/publish-words.ts";
import type { InterfacePlan } from "../../pods/store/pod-plan.ts";
import { type AttachmentPlan, attachmentPlanVersion } from "../attachment-plan.ts";
import { chooseAddresses } from "./choose-addresses.ts";
import { chooseMac } from "./choose-mac.ts";
import { refuseTaken } from "../cni/earlier-plugins.ts";
import { planDns } from "./plan-dns.ts";
import { planLoopback } from "../plan-loopback.ts";
import { hostLinkName, ifbName } from "../link-names.ts";
import { usualMtu } from "../refit.ts";
import type { AttachmentSnapshot } from "./snapshot.ts";
import type { AddRequest, Wishes } from "../cni/wishes.ts";

/** How a container is attached, in addition to the runtime's request. */
export interface Attaching {
  /**
   * OpenShift SDN: the host's end of an existing veth pair, whose other end OpenShift's plugin sets
   * up.
   */
  readonly hostVeth?: IfName;
}

/**
 * Decides everything about an attachment: every name, address, route and rule. Pure. Throws
 * `ADDRESS_*`, `POOL_EXHAUSTED`, `MAC_IN_USE`, `NAME_IN_USE`, `MTU_OUT_OF_RANGE`, `BRIDGE_FULL`,
 * `PORT_IN_USE`, `UNSUPPORTED`.
 */
export function planAttachment(
  request: AddRequest,
  wishes: Wishes,
  snapshot: AttachmentSnapshot,
  { hostVeth }: Attaching = {},
): AttachmentPlan {
  const { id, network } = snapshot;
  const { containerId, ifName, netns, config } = request;
  refuseTaken(request);
  checkPortRoom({ bridge: network.bridge, used: snapshot.ports, wanted: 1 });
  const addresses = chooseAddresses(wishes.ips, snapshot);
  const gateways = snapshot.subnets.map(({ gateway }) => ipOf(gateway));
  const mac = chooseMac(wishes, addresses, snapshot);
  const mtu = planMtu(config.mtu, snapshot);
  const asPod = { network: network.name, bridge: network.bridge, addresses, mtu };
  const interfaces: InterfacePlan[] = [
    { position: 0, gateways: [], guestName: parseIfName(ifName), ...asPod },
  ];
  const { hostPorts } = snapshot;
  const container = { interfaces, routes: [] };
  const published = planPublished(wishes.ports, container, hostPorts, containerWords);
  const loopback =
    config.portsHeldByRuntime && hostPorts !== undefined
      ? planLoopback(published, hostPorts)
      : undefined;
  const bandwidth = bandwidthOf(config.capabilities.bandwidth, mtu);
  const fragment: AttachmentFragment = {
    kind: "attachment",
    key: id,
    netns,
    hostLink: hostVeth ?? hostLinkName(id),
    guestLink: ifName,
    ...(hostVeth === undefined ? {} : { madeByCaller: true }),
    bridge: network.bridge,
    mac,
    mtu,
    addresses,
    routes: gateways.map(defaultBy),
    alias: attachmentMark(id),
    isolated: network.isolated,
    ...(bandwidth === undefined ? {} : { bandwidth }),
    ...(bandwidth?.fromGuest === undefined ? {} : { ifb: ifbName(id) }),
    ...macvlanOf(gateways, request, snapshot),
    ...(published.length === 0 ? {} : { published: publishedDesired(published, interfaces) }),
    ...(loopback === undefined ? {} : { loopback: loopback.redirects }),
  };
  return {
    version: attachmentPlanVersion,
    id,
    containerId,
    ifName,
    config: config.name,
    network: network.name,
    netns,
    mac,
    mtu,
    ...(config.mtu === undefined ? { mtuOfNetwork: true } : {}),
    addresses,
    gateways,
    fragment,
    ...(published.length === 0 ? {} : { published }),
    ...(config.portsHeldByRuntime ? { portsHeldByRuntime: true } : {}),
    ...(loopback === undefined ? {} : { forwarders: loopback.forwarders }),
    dns: planDns(config, snapshot),
    ...(wishes.names.length === 0 ? {} : { names: wishes.names }),
    ...(wishes.pod === undefined ? {} : { pod: wishes.pod }),
  };
}

const defaultBy = (gateway: Ip): RouteDesired => ({
  destination: parseCidr(familyOf(gateway) === 4 ? "0.0.0.0/0" : "::/0"),
  gateway,
});

function planMtu(asked: number | undefined, { network, settings }: AttachmentSnapshot): number {
  const mtu = asked ?? usualMtu(network, settings);
  if (mtu <= network.mtu) return mtu;
  throw new PodnetError(
    "MTU_OUT_OF_RANGE",
    `An MTU of ${mtu} is more than network "${network.name}" has (${network.mtu})`,
    {
      field: "mtu",
      hint: `Write ${network.mtu} or less, or leave it out`,
      details: { network: network.name, mtu: network.mtu },
    },
  );
}

/** The default burst: what the rate brings in a tenth of a second, and some frames at least. */
const burstOf = (rate: number, mtu: number): number => Math.max(Math.ceil(rate / 10), 80 * mtu);

function bandwidthOf(asked: CniBandwidth | undefined, mtu: number): Bandwidth | undefined {
  const limit = (rate: number | undefined, burst: number | undefined): RateLimit | undefined =>
    rate === undefined
      ? undefined
      : { bitsPerSecond: rate, burstBits: burst ?? burstOf(rate, mtu) };
  const toGuest = limit(asked?.ingressRate, asked?.ingressBurst);
  const fromGuest = limit(asked?.egressRate, asked?.egressBurst);
  if (toGuest === undefined && fromGuest === undefined) return undefined;
  return {
    ...(toGuest === undefined ? {} : { toGuest }),
    ...(fromGuest === undefined ? {} : { fromGuest }),
  };
}

/** OpenShift's privileged pods may have one; where there is none nothing is done. */
function macvlanOf(
  gateways: readonly Ip[],
  { config }: AddRequest,
  { settings }: AttachmentSnapshot,
): Pick<AttachmentFragment, "macvlan"> {
  const gateway = gateways.find((each) => familyOf(each) === 4);
  if (gateway === undefined) return {};
  const named = config.serviceCidrs.find((cidr) => familyOf(cidr) === 4);
  const serviceCidr = named ?? settings.serviceCidr;
  return {
    macvlan: { link: "macvlan0", gateway, ...(serviceCidr === undefined ? {} : { serviceCidr }) },
  };
}
