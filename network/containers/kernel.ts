import { closeSync } from "node:fs";
import { NetworkNamespace } from "../../linux/namespaces/namespace.ts";
import { netnsCookie } from "../../linux/namespaces/netns-cookie.ts";
import { ownNetns } from "../../linux/namespaces/netns.ts";
import { getNamespaceId, parseNamespaceId } from "../../linux/rtnetlink/namespace-id.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import type { HostSysctl } from "../kernel/kernel.ts";

/** The functions of the host's rtnetlink that attachments need. */
export type AttachmentNetlink = Pick<
  Rtnetlink,
  | "links"
  | "link"
  | "linksNamed"
  | "addVeth"
  | "addIfb"
  | "changeLink"
  | "leaveBridge"
  | "deleteLink"
  | "deleteGroup"
  | "setGroup"
  | "addresses"
  | "answer"
  | "answers"
  | "tryBatch"
  | "close"
>;

/** The functions of the rtnetlink inside a namespace that attachments need. */
export type InsideNetlink = Pick<
  Rtnetlink,
  "links" | "linksNamed" | "addresses" | "routes" | "tryBatch"
>;

/** A container's network namespace, held open. */
export interface Inside extends Disposable {
  /** The descriptor for links to be created in it. */
  readonly fd: number;
  /**
   * Which one it is, whatever path leads to it; no other one has it until the next boot, where the
   * kernel numbers them.
   */
  readonly identity: string;
  readonly netlink: InsideNetlink;
  /** Settings of this namespace, below `net/`. */
  readonly sysctl: HostSysctl;
  /** The id by which the namespace knows the host's; undefined while it has none. */
  hostId(): Promise<number | undefined>;
}

/**
 * All of the kernel that attachments see and change; their ports and rules are the host's
 * network's.
 */
export interface AttachmentKernel {
  readonly netlink: AttachmentNetlink;
  /** Throws `NETNS_UNUSABLE`. */
  open(path: string): Inside;
}

/** The kernel itself. Its sockets are its own: what holds up others does not hold up these. */
export const openAttachmentKernel = (): AttachmentKernel => ({
  netlink: Rtnetlink.open(),
  open: openInside,
});

function openInside(path: string): Inside {
  using opened = new DisposableStack();
  const namespace = opened.use(NetworkNamespace.open(path));
  const { netlink, cookie } = namespace.enter(() => ({
    netlink: opened.use(Rtnetlink.openSmall()),
    cookie: netnsCookie(),
  }));
  const held = opened.move();
  return {
    fd: namespace.fd,
    identity: [namespace.identity, ...(cookie === undefined ? [] : [cookie])].join(":"),
    netlink,
    // Files below /proc/sys/net are those of the calling thread's namespace.
    sysctl: {
      read: (key) => namespace.enter(() => readSysctl(key)),
      write: (key, value) => namespace.enter(() => writeSysctl(key, value)),
    },
    async hostId() {
      const host = ownNetns();
      try {
        return await netlink.answer(getNamespaceId(host), parseNamespaceId);
      } finally {
        closeSync(host);
      }
    },
    [Symbol.dispose]: () => held.dispose(),
  };
}
