import type { CniBandwidth } from "../../../cni/protocol/capabilities.ts";
import { type Cidr, familyOf, ipOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { PortRates, Rate } from "../../../network/model/rates.ts";
import { checkPortRoom } from "../../../network/model/port-limit.ts";
import { planPublished } from "../../published/plan-published.ts";
import { containerWords } from "../../published/publish-words.ts";
import { type AttachmentPlan, attachmentPlanVersion } from "../attachment-plan.ts";
import { chooseAddresses } from "./choose-addresses.ts";
import { chooseMac } from "./choose-mac.ts";
import { refuseTaken } from "../cni/earlier-plugins.ts";
import { planDns } from "./plan-dns.ts";
import { planLoopback } from "../plan-loopback.ts";
import { usualMtu } from "../attachment-fragment.ts";
import type { AttachmentSnapshot } from "./snapshot.ts";
import type { AttachmentRequest } from "../cni/attachment-request.ts";

/**
 * Decides everything about an attachment: its addresses, MAC, MTU, host ports and name servers.
 * Pure. Throws `ADDRESS_*`, `POOL_EXHAUSTED`, `MAC_IN_USE`, `NAME_IN_USE`, `MTU_OUT_OF_RANGE`,
 * `BRIDGE_FULL`, `PORT_IN_USE`, `UNSUPPORTED`.
 */
export function planAttachment(
  request: AttachmentRequest,
  snapshot: AttachmentSnapshot,
): AttachmentPlan {
  const { id, network } = snapshot;
  const { containerId, ifName, netns, config, hostVeth, names, pod, labels } = request;
  refuseTaken(request);
  checkPortRoom({ bridge: network.bridge, used: snapshot.ports, wanted: 1 });
  const addresses = chooseAddresses(request.ips, snapshot);
  const gateways = snapshot.subnets.map(({ gateway }) => ipOf(gateway));
  const mac = chooseMac(request, addresses, snapshot);
  const mtu = planMtu(config.mtu, snapshot);
  const { bridge } = network;
  const link = { guestName: ifName, network: network.name, bridge, addresses };
  const { hostPorts } = snapshot;
  const container = { interfaces: [link], routes: [] };
  const published = planPublished(request.ports, container, hostPorts, containerWords);
  const loopback =
    config.portsHeldByRuntime && hostPorts !== undefined
      ? planLoopback(published, hostPorts)
      : undefined;
  const bandwidth = bandwidthOf(config.capabilities.bandwidth, mtu);
  return {
    version: attachmentPlanVersion,
    id,
    containerId,
    ifName,
    config: config.name,
    network: network.name,
    netns,
    ...(hostVeth === undefined ? {} : { hostVeth }),
    bridge,
    mac,
    mtu,
    ...(config.mtu === undefined ? { mtuOfNetwork: true } : {}),
    addresses,
    gateways,
    ...(bandwidth === undefined ? {} : { bandwidth }),
    ...serviceCidrOf(request, snapshot),
    ...(published.length === 0 ? {} : { published }),
    ...(config.portsHeldByRuntime ? { portsHeldByRuntime: true } : {}),
    ...(loopback === undefined
      ? {}
      : { forwarders: loopback.forwarders, loopback: loopback.redirects }),
    dns: planDns(config, snapshot),
    ...(names.length === 0 ? {} : { names }),
    ...(pod === undefined ? {} : { pod }),
    ...(Object.keys(labels).length === 0 ? {} : { labels }),
  };
}

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

function bandwidthOf(asked: CniBandwidth | undefined, mtu: number): PortRates | undefined {
  const limit = (rate: number | undefined, burst: number | undefined): Rate | undefined =>
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

/** The service range for a macvlan link of OpenShift's, which is of IPv4. */
function serviceCidrOf(
  { config }: AttachmentRequest,
  { settings }: AttachmentSnapshot,
): { readonly serviceCidr?: Cidr } {
  const named = config.serviceCidrs.find((cidr) => familyOf(cidr) === 4);
  const serviceCidr = named ?? settings.serviceCidr;
  return serviceCidr === undefined ? {} : { serviceCidr };
}
