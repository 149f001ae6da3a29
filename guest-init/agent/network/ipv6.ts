import { writeInto } from "../files.ts";
import { SysError } from "../sys.ts";

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
