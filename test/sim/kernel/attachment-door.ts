import { PodnetError } from "../../../core/errors.ts";
import { newIfb, newVeth } from "../../../linux/rtnetlink/link-requests.ts";
import type { Request } from "../../../linux/rtnetlink/message.ts";
import type {
  AttachmentKernel,
  AttachmentNetlink,
  Inside,
  InsideNetlink,
} from "../../../network/containers/kernel.ts";
import { type Doorkeeper, kernelDoor } from "./door.ts";
import { Errno } from "./errno.ts";
import type { FakeKernel } from "./kernel.ts";
import { FakeNamespaces } from "./namespaces.ts";
import { carryOut } from "./requests.ts";

type Requests = Pick<AttachmentNetlink, "answer" | "answers" | "tryBatch">;

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
  const requests = requestsDoor(fake, namespaces, keeper);
  // In two steps, as with the real one: birth, and the alias after it.
  const born = async (request: Request, name: string, alias: string | undefined) => {
    const [refused] = await requests.tryBatch([request]);
    if (refused !== undefined) throw refused;
    if (alias !== undefined) await netlink.changeLink(name, { alias });
    const made = await netlink.link(name);
    if (made !== undefined) return made;
    throw new PodnetError("NETLINK_FAILED", `Link "${name}" was made and is gone again`, {
      details: { errno: "ENODEV" },
    });
  };
  return {
    netlink: {
      ...netlink,
      ...requests,
      addVeth: (wanted) => born(newVeth(wanted), wanted.name, wanted.alias),
      addIfb: (wanted) => born(newIfb(wanted), wanted.name, wanted.alias),
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
    tryBatch: requestsDoor(kernel, namespaces, keeper).tryBatch,
    routes: (filter) =>
      keeper.later("netlink list routes inside", () => kernel.routesOf(filter?.link)),
  };
}

/** Requests that are sent as they are. */
export function requestsDoor(
  kernel: FakeKernel,
  namespaces: FakeNamespaces,
  keeper: Doorkeeper,
): Requests {
  const done = (request: Request): readonly Uint8Array[] | PodnetError => {
    try {
      return carryOut(kernel, request, (fd) => namespaces.of(fd));
    } catch (thrown) {
      if (thrown instanceof Errno) return refused(request, thrown.code);
      throw thrown;
    }
  };
  const answersOf = (request: Request): readonly Uint8Array[] => {
    const answer = done(request);
    if (answer instanceof PodnetError) throw answer;
    return answer;
  };
  const ask = <T>({ what }: Request, body: () => T): Promise<T> =>
    keeper.later(`netlink ${what}`, body);
  return {
    answer: (request, parse) =>
      ask(request, () => {
        const answer = done(request);
        if (answer instanceof PodnetError) {
          if (absences.has(String(answer.details["errno"]))) return undefined;
          throw answer;
        }
        const [payload] = answer;
        return payload === undefined ? undefined : parse(payload);
      }),
    answers: (request, parse) =>
      ask(request, () =>
        answersOf(request)
          .map(parse)
          .filter((found) => found !== undefined),
      ),
    tryBatch: (requests) =>
      requests.length === 0
        ? Promise.resolve([])
        : keeper.later(`netlink batch: ${requests.map(({ what }) => what).join("; ")}`, () =>
            requests.map((request) => {
              const answer = done(request);
              return answer instanceof PodnetError ? answer : undefined;
            }),
          ),
  };
}

/** What the real one's `answer` takes for absence. */
const absences = new Set(["ENODEV", "EADDRNOTAVAIL", "ESRCH", "ENOENT", "EINVAL"]);

const refused = ({ what }: Request, errno: string): PodnetError =>
  new PodnetError("NETLINK_FAILED", `${what}: ${errno}`, { details: { errno } });
