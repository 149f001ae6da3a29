import { Rtnetlink } from "../../linux/rtnetlink-socket.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import type { HostSysctl } from "../kernel.ts";
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
  | "close"
>;

/** All of the kernel that overlays see and change, rules aside. */
export interface OverlayKernel {
  readonly netlink: OverlayNetlink;
  readonly sysctl: HostSysctl;
  /** Not the kernel's, but as much of the host: what podnetd itself moves packets by. */
  readonly tunnels: Tunnels;
}

/**
 * The kernel itself, in the calling thread's network namespace. Its sockets are its own: a batch of thousands and a slow
 * deletion of somebody else's do not wait for each other.
 */
export const openOverlayKernel = (): OverlayKernel => ({
  netlink: Rtnetlink.open(),
  sysctl: { read: readSysctl, write: writeSysctl },
  tunnels: new Tunnels(),
});
