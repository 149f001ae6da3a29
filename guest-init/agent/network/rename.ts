import { PodnetError } from "../../../core/errors.ts";
import { addAddress } from "../../../linux/rtnetlink/address.ts";
import type { LinkAddress } from "../../../linux/rtnetlink/address.ts";
import { addRoute } from "../../../linux/rtnetlink/route-requests.ts";
import type { Route } from "../../../linux/rtnetlink/route.ts";
import type { LinkState } from "../../../linux/rtnetlink/links/link.ts";
import { routeAttributes } from "../../protocol/attributes.ts";
import type { Netlink } from "./netlink.ts";

/** RTPROT_KERNEL: routes the kernel makes of addresses, and makes again by itself. */
const protocolKernel = 2;

/**
 * Gives a link another name. Kernels before 6.2 refuse it while the link is up; it is then taken
 * down for a moment, which costs it its routes and its IPv6 addresses: they are put back.
 * (hyperstart loses them.)
 */
export function renameLink(netlink: Netlink, link: LinkState, name: string): void {
  if (link.name === name) return;
  if (!link.up) {
    netlink.change(link.index, { name });
    return;
  }
  try {
    netlink.change(link.index, { name });
  } catch (thrown) {
    if (!(thrown instanceof PodnetError) || thrown.details["errno"] !== "EBUSY") throw thrown;
    renameDown(netlink, link, name);
  }
}

function renameDown(netlink: Netlink, link: LinkState, name: string): void {
  const addresses = netlink.addresses(link.index).filter(ours);
  const routes = netlink
    .routes()
    .filter((route) => route.link === link.index && route.protocol !== protocolKernel);
  netlink.change(link.index, { up: false });
  try {
    netlink.change(link.index, { name });
  } finally {
    netlink.change(link.index, { up: true });
    restore(netlink, link.index, addresses, routes);
  }
}

const ours = (address: LinkAddress): boolean => address.permanent && address.scope !== "link";

/** Routes without a gateway come first: they lead to the gateways of the others. */
function restore(
  netlink: Netlink,
  index: number,
  addresses: readonly LinkAddress[],
  routes: readonly Route[],
): void {
  for (const { prefix } of addresses)
    netlink.tolerate(addAddress(index, prefix, { noDad: true }), "EEXIST");
  for (const direct of [true, false]) {
    for (const each of routes) {
      const { destination, gateway, protocol, scope, type, metric, onlink } = each;
      if ((gateway === undefined) !== direct) continue;
      const route = addRoute({
        destination,
        link: index,
        protocol,
        scope,
        type,
        metric,
        onlink,
        ...(gateway === undefined ? {} : { gateway }),
        ...routeAttributes(each),
      });
      netlink.tolerate(route, "EEXIST");
    }
  }
}
