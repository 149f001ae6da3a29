import { parseCidr } from "../../../core/address.ts";
import { addRoute } from "../../../linux/rtnetlink/route-requests.ts";
import { writeInto } from "../files.ts";
import type { Change } from "./netlink.ts";
import { SysError } from "../sys.ts";

const allMulticast = parseCidr("ff00::/8");

/**
 * Lets a link that is up hear multicast at once, which neighbour discovery needs. The kernel makes
 * this route only when the link's operational state is up, which for a NIC plugged a moment ago
 * takes up to a second: state changes are looked at once a second (linkwatch, Linux 6.1). When it
 * comes to it, the kernel finds its own route there.
 */
export const hearMulticast = (index: number): Change => ({
  request: addRoute({
    destination: allMulticast,
    link: index,
    type: "multicast",
    // RT_TABLE_LOCAL, RTPROT_KERNEL, IP6_RT_PRIO_ADDRCONF: as addrconf_add_mroute has them.
    table: 255,
    protocol: 2,
    metric: 256,
  }),
  fine: ["EEXIST"],
});

/**
 * Allows exactly the given addresses: router advertisements create none, and a link without an IPv6
 * address does not speak IPv6 at all, not even link-locally. A kernel without IPv6 has no such
 * files.
 */
export function restrictIpv6(name: string, wanted: boolean): void {
  const settings = { accept_ra: "0", autoconf: "0", disable_ipv6: wanted ? "0" : "1" };
  for (const [key, value] of Object.entries(settings)) {
    try {
      writeInto(`/proc/sys/net/ipv6/conf/${name}/${key}`, value);
    } catch (thrown) {
      if (!(thrown instanceof SysError)) throw thrown;
    }
  }
}
