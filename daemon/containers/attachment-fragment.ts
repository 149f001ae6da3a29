import { familyOf, type Ip, parseCidr } from "../../core/address.ts";
import type { AttachmentFragment, RouteDesired } from "../../network/containers/desired.ts";
import { attachmentMark } from "../../network/model/ownership.ts";
import type { CniSettings } from "../config/cni.ts";
import { portRates } from "../config/port-rates.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { publishedDesired } from "../published/plan-published.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";
import { hostLinkOf } from "./link-names.ts";

/** The MTU of a container that asks for none. Pure. */
export const usualMtu = (
  network: Pick<NetworkDefinition, "mtu">,
  settings: Pick<CniSettings, "mtu">,
): number => Math.min(settings.mtu ?? network.mtu, network.mtu);

/** The routes inside, by the gateways. Pure. */
export const routesOf = ({ gateways }: Pick<AttachmentPlan, "gateways">): RouteDesired[] =>
  gateways.map((gateway) => ({
    destination: parseCidr(familyOf(gateway) === 4 ? "0.0.0.0/0" : "::/0"),
    gateway,
  }));

/**
 * A container's part of the host: its plan, with its network and podnetd's settings as they are
 * now. It follows the network's isolation, its limits where the runtime asks for none, and its
 * MTU where the container asked for none. Once
 * the MTU differs from that of ADD, it waits for later plugins no more: a difference inside may be
 * the MTU that is yet to be applied. Undo needs no network. Pure.
 */
export function attachmentFragment(
  plan: AttachmentPlan,
  networks: readonly Pick<NetworkDefinition, "name" | "isolated" | "mtu" | "limits">[],
  settings: Pick<CniSettings, "mtu">,
): AttachmentFragment {
  const { id, ifName, netns, namespace, hostVeth, bridge, mac, addresses } = plan;
  const { bandwidth, published, loopback, later } = plan;
  const network = networks.find(({ name }) => name === plan.network);
  const follows = plan.mtuOfNetwork === true && network !== undefined;
  const rates = portRates(undefined, network?.limits);
  const mtu = follows ? usualMtu(network, settings) : plan.mtu;
  return {
    kind: "attachment",
    key: id,
    netns,
    ...(namespace === undefined ? {} : { namespace }),
    hostLink: hostLinkOf(plan),
    guestLink: ifName,
    ...(hostVeth === undefined ? {} : { madeByCaller: true }),
    bridge,
    mac,
    mtu,
    addresses,
    routes: routesOf(plan),
    alias: attachmentMark(id),
    isolated: network?.isolated ?? false,
    ...(rates === undefined && bandwidth === undefined
      ? {}
      : { rates: { ...rates, ...bandwidth } }),
    ...macvlanOf(plan),
    ...(published === undefined
      ? {}
      : { published: publishedDesired(published, [{ guestName: ifName, bridge, addresses }]) }),
    ...(loopback === undefined ? {} : { loopback }),
    ...(plan.awaitsPlugins === true && mtu === plan.mtu ? { awaitsPlugins: true } : {}),
    ...(later === undefined ? {} : { later }),
  };
}

/** OpenShift's privileged pods may have one; where there is none nothing is done. */
function macvlanOf({
  gateways,
  serviceCidr,
}: Pick<AttachmentPlan, "gateways" | "serviceCidr">): Pick<AttachmentFragment, "macvlan"> {
  const gateway: Ip | undefined = gateways.find((each) => familyOf(each) === 4);
  if (gateway === undefined) return {};
  return {
    macvlan: { link: "macvlan0", gateway, ...(serviceCidr === undefined ? {} : { serviceCidr }) },
  };
}
