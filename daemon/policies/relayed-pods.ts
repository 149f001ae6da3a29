import type { Socket } from "node:net";
import type { Ip } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import type { DomainName } from "../../policy/domain.ts";
import type { RelayedPod, RelayVerdict, ToRelay } from "../../relay/messages.ts";
import { Table } from "../../relay/table.ts";
import { RelayLink } from "./relay-link.ts";

/** The relay's process, as podnetd finds, starts and ends it. */
export interface RelayProcess {
  /** Connects to the one that runs, or else to one that it starts. Throws why there is none. */
  connect(): Promise<Socket>;
  /** Ends what runs; none is success. */
  end(): Promise<void>;
}

export interface RelayedPodsParts {
  readonly process: RelayProcess;
  readonly clock: Clock;
  readonly report: (verdict: RelayVerdict) => void;
  /** The relay has gone by itself: `set` is to be called again. */
  readonly lost: () => void;
}

/**
 * The pods whose connections are relayed, and the addresses that the resolver gave them: what the
 * relay has, or is to get when it is there again. Without such a pod there is no relay.
 */
export class RelayedPods implements Disposable {
  readonly #parts: RelayedPodsParts;
  /** What the relay is to have. */
  readonly #table: Table;
  #link: RelayLink | undefined;

  constructor(parts: RelayedPodsParts) {
    this.#parts = parts;
    this.#table = new Table(parts.clock, () => {});
  }

  /** Whether a relay takes connections of this pod. */
  has(id: string): boolean {
    return this.#link !== undefined && this.#table.byId(id) !== undefined;
  }

  /**
   * Has the relay take connections of these pods, and of no others; resolves once it does. One call
   * at a time. Throws why there is no relay: then their connections are closed.
   */
  async set(pods: readonly RelayedPod[]): Promise<void> {
    const changes = this.#changes(pods);
    for (const change of changes) this.#table.apply(change);
    if (pods.length === 0) {
      this.#drop();
      await this.#parts.process.end();
      return;
    }
    if (this.#link === undefined) await this.#connect();
    else await this.#send(this.#link, changes);
  }

  /**
   * Lets a pod reach these addresses by this name; false when the relay does not know, and the pod
   * must not be given them.
   */
  async answer(
    id: string,
    name: DomainName,
    addresses: readonly Ip[],
    seconds: number,
  ): Promise<boolean> {
    const link = this.#link;
    if (link === undefined || this.#table.byId(id) === undefined) return false;
    const message = { type: "answer", id, name, addresses, seconds } as const;
    this.#table.apply(message);
    return this.#send(link, [message]).then(
      () => true,
      () => false,
    );
  }

  /** Lets go of the relay, which goes on as it is. */
  [Symbol.dispose](): void {
    this.#drop();
  }

  #changes(pods: readonly RelayedPod[]): ToRelay[] {
    const known = new Map(pods.map((pod) => [pod.id, pod]));
    const gone = this.#table.ids().filter((id) => !known.has(id));
    const changed = pods.filter(
      (pod) => JSON.stringify(this.#table.byId(pod.id)?.pod) !== JSON.stringify(pod),
    );
    return [
      ...gone.map((id): ToRelay => ({ type: "gone", id })),
      ...changed.map((pod): ToRelay => ({ type: "pod", pod })),
    ];
  }

  async #connect(): Promise<void> {
    const { process, report, lost } = this.#parts;
    const socket = await process.connect();
    const link: RelayLink = new RelayLink(socket, report, () => {
      if (this.#link !== link) return;
      this.#link = undefined;
      lost();
    });
    this.#link = link;
    await this.#send(link, this.#table.state());
  }

  /** One that does not answer is ended, for what it has may be out of date. */
  async #send(link: RelayLink, messages: Iterable<ToRelay>): Promise<void> {
    try {
      await link.send(messages);
    } catch (thrown) {
      if (this.#link === link) {
        await this.#parts.process.end();
        link[Symbol.dispose]();
      }
      throw thrown;
    }
  }

  #drop(): void {
    const link = this.#link;
    this.#link = undefined;
    link?.[Symbol.dispose]();
  }
}
