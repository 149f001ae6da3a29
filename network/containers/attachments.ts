import { throwIfAborted } from "../../core/aborting.ts";
import { isPodnetError, type PodnetError, toPodnetError } from "../../core/errors.ts";
import { unusable } from "../../linux/namespaces/namespace.ts";
import type { Link } from "../../linux/rtnetlink/links/link.ts";
import { throwFailures } from "../bridge/apply.ts";
import { changesText } from "../bridge/change-text.ts";
import type { AttachedFragment } from "../model/desired.ts";
import { deviationText } from "../model/deviation.ts";
import type { HostNetwork } from "../bridge/host-network.ts";
import { type Inspection, type InspectOptions, mending, nothingFound } from "../bridge/inspect.ts";
import { requireLinks } from "../bridge/observe.ts";
import { SerialQueue } from "../kernel/queue.ts";
import type {
  AttachmentFragment,
  AttachmentObserved,
  ObservedEnd,
  RouteDesired,
  LaterChanges,
} from "./desired.ts";
import { pendingDeletes, deletePendingGroup } from "./pending-delete.ts";
import { hostPart } from "./host-part.ts";
import { type AttachmentKernel, type Inside, openAttachmentKernel } from "./kernel.ts";
import { compareLinks, observeLater, setUpLinks } from "./links.ts";
import { ensurePair, findHostEnd } from "./pair.ts";

/**
 * The functions of the host's network that attachments need, to make their ports and to accept
 * traffic to their published ports as for pods.
 */
export type AttachmentHost = Pick<
  HostNetwork,
  "apply" | "diff" | "inspect" | "inspectRules" | "remove"
>;

export interface LookOptions extends InspectOptions {
  /**
   * Looks inside the container as well: the kernel reports changes there to no process on the host.
   */
  readonly inside: boolean;
}

const what = "A change of an attachment";

/**
 * Containers on this host: the only interface to make, set up, inspect and delete their links.
 * Calls for one attachment run in the order of the calls; several attachments run concurrently.
 */
export class Attachments implements Disposable {
  readonly #host: AttachmentHost;
  readonly #kernel: AttachmentKernel;
  readonly #turns = new Map<string, { readonly queue: SerialQueue; waiting: number }>();

  /**
   * Works in the calling thread's network namespace, unless another kernel is given. Changes
   * nothing by itself.
   */
  constructor(host: AttachmentHost, kernel: AttachmentKernel = openAttachmentKernel()) {
    this.#host = host;
    this.#kernel = kernel;
  }

  [Symbol.dispose](): void {
    this.#kernel.netlink.close();
  }

  /**
   * Inspects everything that the attachment owns and repairs it: the pair of links, the inside,
   * rates, the port and its rules, in this order, so that traffic starts when everything is there.
   * A second call changes nothing. If a step fails after a pair was made, the next `sweep` removes
   * the pair. `planned` is what the port is from then on, if other than the fragment.
   *
   * Throws `NETNS_UNUSABLE`, `NAME_IN_USE`, `BRIDGE_CONFLICT`, `BRIDGE_FULL`, `NETLINK_FAILED`,
   * `SYSCALL_FAILED`, `CANCELLED`, and the errors of rules.
   */
  ensure(
    fragment: AttachmentFragment,
    signal: AbortSignal,
    planned: AttachmentFragment = fragment,
  ): Promise<AttachmentObserved> {
    return this.#inTurn(fragment.key, signal, async () => {
      const port = hostPart(planned);
      if (fragment.madeByCaller === true) {
        await findHostEnd(this.#kernel, fragment);
        await this.#host.apply(port, signal);
        return this.#observe(fragment);
      }
      using inside = this.#open(fragment);
      const behind = await this.#make(fragment, port, inside, signal);
      return { ...(await this.#observe(fragment)), namespace: inside.identity, behind };
    });
  }

  /**
   * Looks for drift, and repairs it if requested, as `HostNetwork.inspect` does: the port and its
   * rules, and the links with the inside, if requested or if the port is missing. `now` is called
   * when this look starts; it returns undefined if the attachment no longer exists. Failures are
   * returned; throws when the signal aborts.
   */
  async inspect(
    key: string,
    now: () => AttachmentFragment | undefined,
    options: LookOptions,
    signal: AbortSignal,
  ): Promise<Inspection> {
    return this.#inTurn(key, signal, async () => {
      const port = async (): Promise<Inspection> => {
        const part = (): AttachedFragment | undefined => {
          const fragment = now();
          return fragment && hostPart(fragment);
        };
        return this.#host.inspect(part, options, signal);
      };
      const links = async (): Promise<Inspection> => {
        const fragment = now();
        return fragment === undefined ? nothingFound : this.#mendLinks(fragment, options, signal);
      };
      if (options.inside) return oneAfterTheOther(links, port);
      const seen = await port();
      return isGone(seen.error) ? oneAfterTheOther(links, port) : seen;
    });
  }

  /**
   * Which namespace a path leads to now; see `AttachmentFragment.namespace`. Throws
   * `NETNS_UNUSABLE`, `SYSCALL_FAILED`.
   */
  identify(netns: string): string {
    using inside = this.#kernel.open(netns);
    return inside.identity;
  }

  /**
   * The changes that later plugins made in a container that was attached a while ago
   * (`AttachmentFragment.later`); undefined if they cannot be determined now. Throws
   * `NETNS_UNUSABLE`, `NETLINK_FAILED`.
   */
  observeLater(
    fragment: AttachmentFragment,
    signal: AbortSignal,
  ): Promise<LaterChanges | undefined> {
    return this.#inTurn(fragment.key, signal, async () => {
      using inside = this.#open(fragment);
      return await observeLater(this.#kernel, inside, fragment);
    });
  }

  /**
   * Lets a port send what its fragment says, and nothing else; looks at rules alone. `now` is
   * called when this look starts; it returns undefined if the attachment no longer exists. Throws
   * `FIREWALL_FAILED`, `NETLINK_FAILED`.
   */
  async guard(now: () => AttachmentFragment | undefined, signal: AbortSignal): Promise<void> {
    const parts = (): AttachedFragment[] => {
      const fragment = now();
      return fragment === undefined ? [] : [hostPart(fragment)];
    };
    const inspections = await this.#host.inspectRules(parts, () => true, signal);
    throwFailures([...inspections.values()].flatMap(({ error }) => error ?? []));
  }

  /**
   * The deviations of the inside from the fragment and of the host from `planned`, a line each;
   * empty if there are none. Throws `NETNS_UNUSABLE`, `NETLINK_FAILED`.
   */
  check(
    fragment: AttachmentFragment,
    signal: AbortSignal,
    planned: AttachmentFragment = fragment,
  ): Promise<readonly string[]> {
    return this.#inTurn(fragment.key, signal, async () => [
      ...(fragment.madeByCaller === true ? [] : await this.#checkLinks(fragment)),
      ...(await this.#checkHost(planned, signal)),
    ]);
  }

  /**
   * Ends the traffic of attachments: their ports are down and off their bridges, their rules gone.
   * Their links wait for `sweep`, which is slow. Absent is success, their namespaces' absence too.
   * Goes on past failures and throws the first of them.
   */
  async release(fragments: readonly AttachmentFragment[]): Promise<void> {
    // A release is carried out even if its caller cancels the call.
    const { signal } = new AbortController();
    const ended = fragments.map((fragment) =>
      this.#inTurn(fragment.key, signal, async () => {
        const { netlink } = this.#kernel;
        const outcomes = await netlink.tryBatch(await pendingDeletes(netlink, fragment));
        const failures = outcomes.filter((outcome) => outcome !== undefined && !isGone(outcome));
        try {
          await this.#host.remove({ kind: "published", of: hostPart(fragment) }, signal);
        } catch (error) {
          failures.push(toPodnetError(error));
        }
        throwFailures(failures as PodnetError[]);
      }),
    );
    const failed = (await Promise.allSettled(ended)).filter(({ status }) => status === "rejected");
    throwFailures(
      failed.map((outcome) => toPodnetError((outcome as PromiseRejectedResult).reason)),
    );
  }

  /**
   * Deletes all released links with one message, including links that an earlier podnetd released.
   * Returns their number.
   */
  sweep(): Promise<number> {
    return deletePendingGroup(this.#kernel.netlink);
  }

  async #checkLinks(fragment: AttachmentFragment): Promise<string[]> {
    using inside = this.#open(fragment);
    try {
      return (await compareLinks(this.#kernel, inside, fragment)).map(deviationText);
    } catch (error) {
      if (isPodnetError(error, "INTERFACE_NOT_FOUND")) return [error.message];
      throw error;
    }
  }

  /**
   * Looks at the links alone, and heals them if asked to: with their port, where they had to be
   * made.
   */
  async #mendLinks(
    fragment: AttachmentFragment,
    { heal }: InspectOptions,
    signal: AbortSignal,
  ): Promise<Inspection> {
    if (fragment.madeByCaller === true) return nothingFound;
    using opened = new DisposableStack();
    return await mending(heal, async () => {
      const inside = opened.use(this.#open(fragment));
      return {
        found: await compareLinks(this.#kernel, inside, fragment),
        mend: async () => {
          await this.#make(fragment, hostPart(fragment), inside, signal);
        },
      };
    });
  }

  /**
   * Opens an attachment's namespace; the path may lead to a foreign namespace by now. Throws
   * `NETNS_UNUSABLE`.
   */
  #open({ netns, namespace }: AttachmentFragment): Inside {
    using opened = new DisposableStack();
    const inside = opened.use(this.#kernel.open(netns));
    if (namespace !== undefined && inside.identity !== namespace) throw unusable(netns, "another");
    opened.move();
    return inside;
  }

  /**
   * The pair of links, the inside, rates, the port and its rules, in this order; a pair that was
   * made goes when one fails.
   */
  async #make(
    fragment: AttachmentFragment,
    port: AttachedFragment,
    inside: Inside,
    signal: AbortSignal,
  ): Promise<readonly RouteDesired[]> {
    const pair = await ensurePair(this.#kernel, inside, fragment);
    try {
      const behind = await setUpLinks(this.#kernel, inside, fragment, pair);
      throwIfAborted(signal, what);
      await this.#host.apply(port, signal);
      return behind;
    } catch (error) {
      if (pair.isNew) await this.#undo(fragment);
      throw error;
    }
  }

  async #checkHost(fragment: AttachmentFragment, signal: AbortSignal): Promise<string[]> {
    try {
      return changesText(await this.#host.diff(hostPart(fragment), signal));
    } catch (error) {
      // That the port or its bridge is missing is an answer.
      if (isPodnetError(error, "BRIDGE_CONFLICT", "NAME_IN_USE") || isGone(error))
        return [(error as PodnetError).message];
      throw error;
    }
  }

  async #observe({ bridge, hostLink, guestLink, mac, mtu, madeByCaller }: AttachmentFragment) {
    const { netlink } = this.#kernel;
    const [master, port] = await requireLinks(netlink, bridge, hostLink);
    return {
      bridge: end(master),
      host: end(port),
      ...(madeByCaller === true ? {} : { guest: { name: guestLink, mac, mtu } }),
    };
  }

  async #undo(fragment: AttachmentFragment): Promise<void> {
    const { netlink } = this.#kernel;
    await netlink.tryBatch(await pendingDeletes(netlink, fragment));
    try {
      await this.#host.remove(
        { kind: "published", of: hostPart(fragment) },
        new AbortController().signal,
      );
    } catch {
      // The earlier failure is the one to report; rules without a row are swept.
    }
  }

  async #inTurn<T>(key: string, signal: AbortSignal, task: () => Promise<T>): Promise<T> {
    const turn = this.#turns.get(key) ?? { queue: new SerialQueue(), waiting: 0 };
    this.#turns.set(key, turn);
    turn.waiting++;
    try {
      return await turn.queue.run(task, signal);
    } finally {
      if (--turn.waiting === 0) this.#turns.delete(key);
    }
  }
}

/** The deviations that both looks find. The second look is skipped if the first one found any. */
async function oneAfterTheOther(
  first: () => Promise<Inspection>,
  second: () => Promise<Inspection>,
): Promise<Inspection> {
  const before = await first();
  if (!before.healed) return before;
  const { found, healed, error } = await second();
  return { found: [...before.found, ...found], healed, error };
}

const end = ({ name, mac, mtu }: Link): ObservedEnd => ({
  name,
  mtu,
  // (Bridges and veths have one.)
  mac: mac as NonNullable<typeof mac>,
});

/** Whether the link is gone already, which counts as a successful deletion. */
const isGone = (error: unknown): boolean =>
  isPodnetError(error, "NETLINK_FAILED") && error.details["errno"] === "ENODEV";
