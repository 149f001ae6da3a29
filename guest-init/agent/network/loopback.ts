import { addAddress, deleteAddress } from "../../../linux/rtnetlink/address.ts";
import { changeLink } from "../../../linux/rtnetlink/links/link-requests.ts";
import type { LinkState } from "../../../linux/rtnetlink/links/link.ts";
import type { Change } from "../../network/changes.ts";
import type { GuestConfig } from "../../protocol/configure.ts";
import type { Links } from "./links.ts";
import type { Netlink } from "./netlink.ts";
import { loopbackAddresses } from "./observe.ts";

/** Addresses of `lo` alongside the machine's own, when some are named. */
type Loopback = Pick<GuestConfig, "loopback">;

/** Raises `lo`, and gives it its addresses. */
export function setLoopback(
  { loopback: wanted }: Loopback,
  all: readonly LinkState[],
  netlink: Netlink,
): Change[] {
  const lo = all.find(({ loopback }) => loopback);
  if (lo === undefined) return [];
  const { index } = lo;
  const raise = lo.up ? [] : [{ request: changeLink(index, { up: true }) }];
  if (wanted === undefined) return raise;
  const there = loopbackAddresses(netlink, index);
  const present = new Set(there);
  const named = new Set(wanted);
  return [
    ...raise,
    ...there
      .filter((prefix) => !named.has(prefix))
      .map((prefix) => ({ request: deleteAddress(index, prefix), fine: ["EADDRNOTAVAIL"] })),
    ...wanted
      .filter((prefix) => !present.has(prefix))
      .map((prefix) => ({ request: addAddress(index, prefix, { noDad: true }), fine: ["EEXIST"] })),
  ];
}

/**
 * Sets `lo` up again when something in the guest takes it down, as `ifdown -a` does: whatever
 * speaks to itself needs it. Its addresses of IPv6 have gone with it.
 */
export function keepLoopback(links: Links, { loopback }: Loopback): void {
  const wanted = loopback === undefined ? {} : { loopback };
  links.afterChanges(() => {
    const { netlink } = links;
    const lo = netlink.link("lo");
    if (lo !== undefined && !lo.up) netlink.apply(setLoopback(wanted, [lo], netlink));
  });
}
