import { closeSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { familyOf, type Mac } from "../../../core/address.ts";
import { assertNever } from "../../../core/brand.ts";
import { ownNetns, withNewNetns } from "../../../linux/namespaces/netns.ts";
import { addAddress } from "../../../linux/rtnetlink/address.ts";
import { changeLink, newIfb, newVeth } from "../../../linux/rtnetlink/links/link-requests.ts";
import type { Request } from "../../../linux/rtnetlink/message.ts";
import { addIngress, setTokenBucket } from "../../../linux/rtnetlink/qdisc.ts";
import { addRedirect, deleteFilters, redirectPriority } from "../../../linux/rtnetlink/redirect.ts";
import { addRoute, appendRoute, deleteRoute } from "../../../linux/rtnetlink/route-requests.ts";
import { Rtnetlink } from "../../../linux/netlink/rtnetlink-socket.ts";
import type { AttachmentNetlink, InsideNetlink } from "../../../network/containers/kernel.ts";
import { insideDoor } from "./attachment-door.ts";
import type { AttachmentOperation } from "./attachment-sequence.ts";
import { openDoor } from "./door.ts";
import type { FakeKernel } from "./kernel.ts";
import { FakeNamespaces } from "./namespaces.ts";
import { requestsDoor } from "./requests-door.ts";
import type { Subject } from "./subject.ts";

/**
 * A kernel as far as containers are concerned: requests on the host, and a namespace alongside it.
 */
export interface Attaching {
  readonly host: Pick<AttachmentNetlink, "answer" | "answers" | "tryBatch">;
  /** Undefined when it has ended. */
  readonly inside: InsideNetlink | undefined;
  readonly fd: number;
  end(): void;
}

export function realAttaching(host: Rtnetlink): Attaching {
  const opened = withNewNetns(() => ({ netlink: Rtnetlink.openSmall(), fd: ownNetns() }));
  const attaching = {
    host,
    inside: opened.netlink as Rtnetlink | undefined,
    fd: opened.fd,
    end() {
      if (attaching.inside === undefined) return;
      attaching.inside = undefined;
      opened.netlink.close();
      closeSync(opened.fd);
    },
  };
  return attaching;
}

export function fakeAttaching(host: FakeKernel, randomMac: () => Mac): Attaching {
  const namespaces = new FakeNamespaces(randomMac);
  const kernel = namespaces.make("inside");
  const { fd } = namespaces.open("inside") as { fd: number };
  namespaces.remove("inside");
  const attaching = {
    host: requestsDoor(host, (fd) => namespaces.of(fd), openDoor),
    inside: insideDoor(kernel, namespaces, openDoor) as Attaching["inside"],
    fd,
    end() {
      if (attaching.inside === undefined) return;
      attaching.inside = undefined;
      namespaces.close(fd);
    },
  };
  return attaching;
}

/** Carries out one operation, and answers the errno's name, or `ok`. */
export async function runAttachment(
  operation: AttachmentOperation,
  { netlink, attaching }: Pick<Subject, "netlink" | "attaching">,
): Promise<string> {
  const { inside, host } = attaching;
  const hostIndex = async (name: string): Promise<number> =>
    (await netlink.link(name))?.index ?? 99_999;
  const onHost = (...requests: Request[]): Promise<string> => outcomes(host, requests);
  const within = async (link: string, request: (index: number) => Request): Promise<string> => {
    if (inside === undefined) return "ended";
    const [found] = await inside.linksNamed([link]);
    return outcomes(inside, [request(found?.index ?? 99_999)]);
  };
  switch (operation.kind) {
    case "pair": {
      if (inside === undefined) return "ended";
      const { name, group, mtu, peer, peerMac, peerMtu } = operation;
      return onHost(
        newVeth({
          name,
          ...(group === undefined ? {} : { group }),
          ...(mtu === undefined ? {} : { mtu }),
          peer: {
            name: peer,
            netnsFd: attaching.fd,
            ...(peerMac === undefined ? {} : { mac: peerMac }),
            ...(peerMtu === undefined ? {} : { mtu: peerMtu }),
          },
        }),
      );
    }
    case "ifb": {
      const { kind: _kind, ...wanted } = operation;
      return onHost(newIfb(wanted));
    }
    case "rate":
      return onHost(setTokenBucket(await hostIndex(operation.link), operation));
    case "ingress":
      return onHost(addIngress(await hostIndex(operation.link)));
    case "redirect":
      return onHost(addRedirect(await hostIndex(operation.link), await hostIndex(operation.to)));
    case "clear-filters":
      return onHost(deleteFilters(await hostIndex(operation.link), redirectPriority));
    case "inside-change":
      return within(operation.link, (index) => changeLink(index, operation.set));
    case "inside-address":
      return within(operation.link, (index) =>
        addAddress(index, operation.prefix, { noDad: true }),
      );
    case "inside-route":
    case "inside-route-gone": {
      const { kind, link, ...route } = operation;
      // As attachments do: an IPv6 route is not appended.
      const make = familyOf(route.destination) === 4 ? appendRoute : addRoute;
      const ask = kind === "inside-route" ? make : deleteRoute;
      return within(link, (index) => ask({ ...route, link: index, protocol: 73 }));
    }
    case "defer": {
      const indexes = await Promise.all(operation.links.map(hostIndex));
      return onHost(
        ...indexes.map((index) =>
          changeLink(index, { up: false, group: operation.group, master: 0 }),
        ),
      );
    }
    case "namespace-ends":
      attaching.end();
      // The kernel ends a namespace a while after the last who was in it.
      for (let tries = 0; tries < 500 && (await pairsLeft(netlink)); tries++) await delay(5);
      return "ok";
    default:
      return assertNever(operation);
  }
}

const pairsLeft = async (netlink: Subject["netlink"]): Promise<boolean> =>
  (await netlink.links({ kind: "veth" })).some(({ linkNetnsId }) => linkNetnsId !== undefined);

async function outcomes(
  netlink: Pick<AttachmentNetlink, "tryBatch">,
  requests: readonly Request[],
): Promise<string> {
  const all = await netlink.tryBatch(requests);
  return all.map((error) => (error === undefined ? "ok" : String(error.details["errno"]))).join();
}
