import { PodnetError } from "../../../core/errors.ts";
import type { Link } from "../../../linux/rtnetlink/links/link.ts";
import type { Request } from "../../../linux/rtnetlink/message.ts";
import type { HostNetlink } from "../../../network/kernel/kernel.ts";
import type { Doorkeeper } from "./door.ts";
import { Errno } from "./errno.ts";
import type { FakeKernel } from "./kernel.ts";
import { carryOut } from "./requests.ts";

export type Requests = Pick<HostNetlink, "answer" | "answers" | "tryBatch">;

/** Makes a link in two steps, as with the real kernel: birth, and the alias after it. */
export async function bornBy(
  netlink: Pick<HostNetlink, "changeLink" | "link">,
  requests: Requests,
  request: Request,
  { name, alias }: { readonly name: string; readonly alias?: string },
): Promise<Link> {
  const [refused] = await requests.tryBatch([request]);
  if (refused !== undefined) throw refused;
  if (alias !== undefined) await netlink.changeLink(name, { alias });
  const made = await netlink.link(name);
  if (made !== undefined) return made;
  throw new PodnetError("NETLINK_FAILED", `Link "${name}" was made and is gone again`, {
    details: { errno: "ENODEV" },
  });
}

/** Requests that are sent as they are. */
export function requestsDoor(
  kernel: FakeKernel,
  namespace: (fd: number) => FakeKernel,
  keeper: Doorkeeper,
): Requests {
  const done = (request: Request): readonly Uint8Array[] | PodnetError => {
    try {
      return carryOut(kernel, request, namespace);
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
