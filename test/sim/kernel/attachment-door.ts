import { PodnetError } from "../../../core/errors.ts";
import { newVeth } from "../../../linux/rtnetlink/links/link-requests.ts";
import type {
  AttachmentKernel,
  Inside,
  InsideNetlink,
} from "../../../network/containers/kernel.ts";
import { type Doorkeeper, kernelDoor } from "./door.ts";
import type { FakeKernel } from "./kernel.ts";
import { FakeNamespaces } from "./namespaces.ts";
import { bornBy, requestsDoor } from "./requests-door.ts";

/**
 * The fake as attachments of containers see a kernel: the host's namespace, and those that paths
 * lead to.
 */
export function attachmentDoor(
  fake: FakeKernel,
  namespaces: FakeNamespaces,
  keeper: Doorkeeper,
): AttachmentKernel {
  const { netlink } = kernelDoor(fake, keeper, "");
  const requests = requestsDoor(fake, (fd) => namespaces.of(fd), keeper);
  return {
    netlink: {
      ...netlink,
      ...requests,
      addVeth: (wanted) => bornBy(netlink, requests, newVeth(wanted), wanted),
    },
    open: (path) => openDoor(namespaces, keeper, path),
  };
}

function openDoor(namespaces: FakeNamespaces, keeper: Doorkeeper, path: string): Inside {
  const { fd, kernel, identity } = keeper.now(`netns open ${FakeNamespaces.nameOf(path)}`, () => {
    const opened = namespaces.open(path);
    if (opened !== undefined) return opened;
    throw new PodnetError("NETNS_UNUSABLE", "The network namespace is not there", {
      hint: "It may have been deleted meanwhile; make the sandbox again",
      details: { trouble: "absent" },
    });
  });
  const inside = {
    fd,
    identity,
    netlink: insideDoor(kernel, namespaces, keeper),
    sysctl: kernelDoor(kernel, keeper, "").sysctl,
    // By this number each knows the other here.
    hostId: () => keeper.later("netlink read namespace's number", () => 0),
    [Symbol.dispose]: () => namespaces.close(fd),
  };
  return inside;
}

/** A namespace as one who is in it asks it. */
export function insideDoor(
  kernel: FakeKernel,
  namespaces: FakeNamespaces,
  keeper: Doorkeeper,
): InsideNetlink {
  const { links, linksNamed, addresses } = kernelDoor(kernel, keeper, "").netlink;
  return {
    links,
    linksNamed,
    addresses,
    tryBatch: requestsDoor(kernel, (fd) => namespaces.of(fd), keeper).tryBatch,
    routes: (filter) =>
      keeper.later("netlink list routes inside", () => kernel.routesOf(filter?.link)),
  };
}
