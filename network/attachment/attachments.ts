import { throwIfAborted } from "../../core/aborting.ts";
import { isPodnetError, type PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Link } from "../../linux/rtnetlink/link.ts";
import { throwFailures } from "../apply.ts";
import { changesText } from "../change.ts";
import { mark } from "../desired.ts";
import type { HostNetwork } from "../ensure.ts";
import { requireLink } from "../observe.ts";
import { SerialQueue } from "../queue.ts";
import type { AttachmentFragment, AttachmentObserved, ObservedEnd } from "./desired.ts";
import { burials, endGraveyard } from "./graveyard.ts";
import { hostPart } from "./host-part.ts";
import { observeInside, planInside } from "./inside.ts";
import { type AttachmentKernel, type Inside, openAttachmentKernel } from "./kernel.ts";
import { observeMacvlan } from "./macvlan.ts";
import { areEnds, ensurePair, findHostEnd, type Pair } from "./pair.ts";
import { observeRates, planRates, wantedIfb } from "./rates.ts";
import { type Step, takeSteps } from "./step.ts";

/** What attachments need of the host's network: their ports are made, and what they publish is let in, as pods' are. */
export type AttachmentHost = Pick<HostNetwork, "ensure" | "diff" | "unpublish">;

const what = "A change of an attachment";

/**
 * Containers on this host: the one way their links are made, set up, looked at and ended. What is asked of one attachment
 * is done in the order of asking; several are done side by side.
 */
export class Attachments implements Disposable {
  readonly #host: AttachmentHost;
  readonly #kernel: AttachmentKernel;
  readonly #turns = new Map<string, { readonly queue: SerialQueue; waiting: number }>();

  /** In the calling thread's network namespace, unless another kernel is given. Changes nothing by itself. */
  constructor(host: AttachmentHost, kernel: AttachmentKernel = openAttachmentKernel()) {
    this.#host = host;
    this.#kernel = kernel;
  }

  [Symbol.dispose](): void {
    this.#kernel.netlink.close();
  }

  /**
   * Looks at all that is the attachment's and makes it what it should be: the pair of links, the inside, rates, the port and
   * its rules, in this order, so that traffic begins when all is there. Doing it twice changes nothing the second time. When
   * a pair was made and something fails then, it goes with the next `sweep`.
   *
   * Throws `NETNS_UNUSABLE`, `NAME_IN_USE`, `BRIDGE_CONFLICT`, `BRIDGE_FULL`, `NETLINK_FAILED`, `SYSCALL_FAILED`,
   * `CANCELLED`, and what rules throw.
   */
  ensure(fragment: AttachmentFragment, signal: AbortSignal): Promise<AttachmentObserved> {
    return this.#inTurn(fragment.key, signal, async () => {
      if (fragment.madeByCaller === true) {
        await findHostEnd(this.#kernel, fragment);
        await this.#host.ensure(hostPart(fragment), signal);
        return this.#observe(fragment);
      }
      using inside = this.#kernel.open(fragment.netns);
      const pair = await ensurePair(this.#kernel, inside, fragment);
      try {
        await this.#setUp(fragment, pair, inside);
        throwIfAborted(signal, what);
        await this.#host.ensure(hostPart(fragment), signal);
        return await this.#observe(fragment);
      } catch (error) {
        if (pair.isNew) await this.#undo(fragment);
        throw error;
      }
    });
  }

  /** What is not as it should be, a line each; nothing when all is. Throws `NETNS_UNUSABLE`, `NETLINK_FAILED`. */
  check(fragment: AttachmentFragment, signal: AbortSignal): Promise<readonly string[]> {
    return this.#inTurn(fragment.key, signal, async () => [
      ...(fragment.madeByCaller === true ? [] : await this.#checkInside(fragment)),
      ...(await this.#checkHost(fragment, signal)),
    ]);
  }

  /**
   * Ends the traffic of attachments: their ports are down and off their bridges, their rules gone. Their links wait for
   * `sweep`, which is slow. Absent is success, their namespaces' absence too. Goes on past failures and throws the first of
   * them.
   */
  async release(fragments: readonly AttachmentFragment[]): Promise<void> {
    // Whoever releases wants it done, whatever becomes of the call.
    const { signal } = new AbortController();
    const ended = fragments.map((fragment) =>
      this.#inTurn(fragment.key, signal, async () => {
        const { netlink } = this.#kernel;
        const outcomes = await netlink.tryBatch(await burials(netlink, fragment));
        const failures = outcomes.filter((outcome) => outcome !== undefined && !isGone(outcome));
        try {
          await this.#host.unpublish(hostPart(fragment), signal);
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

  /** Ends the links that were released, all with one message: also those of a podnetd before. How many there were. */
  sweep(): Promise<number> {
    return endGraveyard(this.#kernel.netlink);
  }

  async #setUp(fragment: AttachmentFragment, pair: Pair, inside: Inside): Promise<void> {
    await takeSteps(await this.#insideSteps(fragment, pair, inside), inside.netlink);
    // A pair that was just made has no rate to be rid of.
    if (pair.isNew && fragment.bandwidth === undefined) return;
    const { netlink } = this.#kernel;
    const { mtu, alias } = fragment;
    const name = wantedIfb(fragment);
    if (name !== undefined && (await netlink.link(name)) === undefined)
      await netlink.addIfb({ name, mtu, group: mark.linkGroup, alias, up: true });
    const observed = await observeRates(netlink, fragment, pair.host);
    await takeSteps(planRates(fragment, pair.host, observed), netlink);
  }

  async #insideSteps(
    fragment: AttachmentFragment,
    { guest, isNew }: Pair,
    inside: Inside,
  ): Promise<Step[]> {
    const macvlan = await observeMacvlan(this.#kernel.netlink, inside, fragment);
    const wanted = { ...fragment, routes: [...fragment.routes, ...macvlan.routes] };
    const observed = await observeInside(inside.netlink, guest, isNew);
    return [...macvlan.steps, ...planInside(wanted, observed)];
  }

  async #checkInside(fragment: AttachmentFragment): Promise<string[]> {
    const { hostLink, guestLink } = fragment;
    const { netlink } = this.#kernel;
    using inside = this.#kernel.open(fragment.netns);
    const host = await netlink.link(hostLink);
    const guest = await inside.netlink.link(guestLink);
    if (guest === undefined) return [`${guestLink} is not there`];
    if (host === undefined || !areEnds(host, guest))
      return [`${guestLink} is not the other end of ${hostLink}`];
    const rates = await observeRates(netlink, fragment, host);
    const ifb = wantedIfb(fragment);
    const steps = [
      ...(await this.#insideSteps(fragment, { host, guest, isNew: false }, inside)),
      ...planRates(fragment, host, rates),
    ];
    return [
      ...steps.map(({ says }) => says),
      ...(ifb !== undefined && rates.ifb === undefined ? [`${ifb} is not there`] : []),
    ];
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
    return {
      bridge: end(await requireLink(netlink, bridge)),
      host: end(await requireLink(netlink, hostLink)),
      ...(madeByCaller === true ? {} : { guest: { name: guestLink, mac, mtu } }),
    };
  }

  async #undo(fragment: AttachmentFragment): Promise<void> {
    const { netlink } = this.#kernel;
    await netlink.tryBatch(await burials(netlink, fragment));
    try {
      await this.#host.unpublish(hostPart(fragment), new AbortController().signal);
    } catch {
      // What failed before is what is to be told of; rules without a row are swept.
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

const end = ({ name, mac, mtu }: Link): ObservedEnd => ({
  name,
  mtu,
  // (Bridges and veths have one.)
  mac: mac as NonNullable<typeof mac>,
});

/** A link that has gone meanwhile: what was to end has ended. */
const isGone = (error: unknown): boolean =>
  isPodnetError(error, "NETLINK_FAILED") && error.details["errno"] === "ENODEV";
