import type { IfName } from "../../core/names.ts";
import { leaveChecksums, leavesChecksums } from "../../linux/ethtool.ts";
import { Rtnetlink } from "../../linux/rtnetlink-socket.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import type { HostSysctl } from "../kernel/kernel.ts";
import { Tunnels } from "./udp/tunnels.ts";

/** What of rtnetlink overlays need. */
export type OverlayNetlink = Pick<
  Rtnetlink,
  | "links"
  | "link"
  | "addVxlan"
  | "changeLink"
  | "changeVxlan"
  | "deleteLink"
  | "addresses"
  | "addAddress"
  | "deleteAddress"
  | "routes"
  | "routesTo"
  | "neighbours"
  | "fdb"
  | "tryBatch"
  | "hasAsked"
  | "close"
>;

/** All of the kernel that overlays see and change, rules aside. */
export interface OverlayKernel {
  readonly netlink: OverlayNetlink;
  readonly sysctl: HostSysctl;
  /** Who makes checksums of what leaves by a link. */
  readonly checksums: {
    readonly left: (link: IfName) => boolean;
    readonly leave: (link: IfName, left: boolean) => void;
  };
  /** Not the kernel's, but as much of the host: what podnetd itself moves packets by. */
  readonly tunnels: Tunnels;
}

/**
 * The kernel itself, in the calling thread's network namespace. Its sockets are its own: a batch of
 * thousands and a slow deletion of somebody else's do not wait for each other.
 */
export const openOverlayKernel = (): OverlayKernel => ({
  netlink: Rtnetlink.open(),
  sysctl: { read: readSysctl, write: writeSysctl },
  checksums: { left: leavesChecksums, leave: leaveChecksums },
  tunnels: new Tunnels(),
});
