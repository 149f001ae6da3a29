import { isPodnetError } from "../core/errors.ts";
import { NetlinkSocket } from "./netlink/netlink-socket.ts";
import { withNewNetns } from "./namespaces/netns.ts";
import { newOfKind } from "./rtnetlink/links/link-requests.ts";
import { Rtnetlink } from "./netlink/rtnetlink-socket.ts";

/** Errors of a kernel that does not support a kind of link, or a family of netlink. */
const unknown: readonly unknown[] = ["EOPNOTSUPP", "EPROTONOSUPPORT"];

/**
 * Whether this kernel has a kind of link (`wireguard`, `ipip`, …); loads its module if there is
 * one. Tries to make such a link, in an otherwise unused network namespace that ends with the
 * attempt. Throws `NETLINK_FAILED`, `SYSCALL_FAILED`.
 */
export async function kernelHasLinkKind(kind: string): Promise<boolean> {
  using netlink = withNewNetns(() => Rtnetlink.open());
  try {
    await netlink.run(newOfKind(kind, { name: "try0" }));
    return true;
  } catch (error) {
    if (!isPodnetError(error, "NETLINK_FAILED")) throw error;
    const { errno } = error.details;
    if (unknown.includes(errno)) return false;
    // Some kinds exist once in each namespace already, or need more attributes: the kernel supports
    // them.
    if (errno === "EEXIST" || errno === "EINVAL") return true;
    throw error;
  }
}

/** Whether this kernel can encrypt packets by policies (ipsec). Throws `SYSCALL_FAILED`. */
export function kernelHasXfrm(): boolean {
  try {
    new NetlinkSocket({ family: "xfrm" }).close();
    return true;
  } catch (error) {
    if (isPodnetError(error, "SYSCALL_FAILED") && unknown.includes(error.details["errno"]))
      return false;
    throw error;
  }
}
