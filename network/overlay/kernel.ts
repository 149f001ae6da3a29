import type { IfName } from "../../core/names.ts";
import { leaveChecksums, leavesChecksums } from "../../linux/ethtool.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import type { HostSysctl } from "../kernel/kernel.ts";
import { Tunnels } from "./udp/tunnels.ts";

/** The functions of rtnetlink that overlays need. */
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
  /**
   * The setting that decides whether the kernel or the card computes checksums of packets that
   * leave by a link.
   */
  readonly checksums: {
    readonly left: (link: IfName) => boolean;
    readonly leave: (link: IfName, left: boolean) => void;
  };
  /**
   * The tunnels through which podnetd itself forwards packets: not the kernel's, but part of the
   * host, too.
   */
  readonly tunnels: Tunnels;
}

/**
 * The kernel itself, in the calling thread's network namespace. It has sockets of its own, so that
 * a batch of thousands does not wait for a slow deletion elsewhere, or the reverse.
 */
export const openOverlayKernel = (): OverlayKernel => ({
  netlink: Rtnetlink.open(),
  sysctl: { read: readSysctl, write: writeSysctl },
  checksums: { left: leavesChecksums, leave: leaveChecksums },
  tunnels: new Tunnels(),
});
