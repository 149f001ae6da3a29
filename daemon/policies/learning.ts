import { setTimeout as delay } from "node:timers/promises";
import type { Ip } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Learned } from "../../network/firewall/nftables/learn-table.ts";
import type { PluggedFragment } from "../../network/model/desired.ts";
import type { DomainName } from "../../policy/domain.ts";
import { learnedPolicy, type LearnedPolicy } from "../../policy/learned.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";

export interface LearningParts {
  readonly network: Pick<HostNetwork, "apply" | "observe">;
  /** The part of the host of a pod that runs, or of an attached container. */
  readonly fragmentOf: (holder: string) => PluggedFragment | undefined;
  readonly log: Log;
}

/** A pod or container, as policies call it. */
export interface LearnedFrom {
  readonly holder: string;
  /** For people. */
  readonly shown: string;
  readonly name: string;
  readonly namespace?: string | undefined;
}

/** The one that is learned from. */
interface Learner {
  readonly holder: string;
  readonly names: Map<DomainName, Set<Ip>>;
}

/** Names, and addresses of a name, that are noted. */
const mostNames = 2000;
const mostAddresses = 64;
/** Between two looks, and longest that one may wait for changes of the host, milliseconds. */
const lookMs = 1000;
const waitMs = 10_000;

/**
 * Learns what a pod or container uses: connections are noted by the kernel, and names by the
 * resolver and the relay. One of them at a time, so that what it fills is its own. Each look puts
 * back what other programs took from the kernel's part. It ends with its caller; what a podnetd
 * that was killed left of it in the kernel is an orphan of the next start.
 */
export class Learning implements AsyncDisposable {
  readonly #parts: LearningParts;
  readonly #queue: WorkQueue<"end">;
  #now: Learner | undefined;

  constructor(parts: LearningParts) {
    this.#parts = parts;
    const { log } = parts;
    this.#queue = new WorkQueue({
      name: "policies",
      backoff: { firstMs: 1000, longestMs: 30_000 },
      onDegraded: (_, { error }) =>
        log.warn({ err: error }, "Failed to remove what notes a pod's connections; retrying"),
      onRecovered: () => log.info({}, "What noted a pod's connections is removed"),
    });
  }

  isLearning(holder: string): boolean {
    return this.#now?.holder === holder;
  }

  /** A holder has resolved a name, or said it. */
  addName(holder: string, name: DomainName, addresses: readonly Ip[]): void {
    const { holder: own, names = new Map<DomainName, Set<Ip>>() } = this.#now ?? {};
    if (own !== holder || (!names.has(name) && names.size >= mostNames)) return;
    const known = names.get(name) ?? new Set();
    names.set(name, known);
    for (const ip of addresses) if (known.size < mostAddresses) known.add(ip);
  }

  /**
   * The policy that allows what a pod or container used so far: once its connections are noted,
   * whenever it has used more, and at the end: when the time is over, or it does not run any more.
   * Throws `LIMIT_REACHED` while another one is learned from, `WRONG_STATE`, and what the host
   * refuses.
   */
  async *learn(
    of: LearnedFrom,
    forMs: number | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<LearnedPolicy> {
    const { network, fragmentOf } = this.#parts;
    if (this.#now !== undefined)
      throw new PodnetError("LIMIT_REACHED", "Another pod or container is learned from", {
        hint: "Wait until podnet policy learn has ended there",
      });
    const { holder, name: pod, namespace } = of;
    const names: Learner["names"] = new Map();
    this.#now = { holder, names };
    const flows = new Map<string, Learned>();
    const policy = (): LearnedPolicy =>
      learnedPolicy({
        pod,
        ...(namespace === undefined ? {} : { namespace }),
        names,
        flows: [...flows.values()],
      });
    const end = performance.now() + (forMs ?? Infinity);
    try {
      await this.#set(running(fragmentOf, of));
      const nothing = policy();
      yield nothing;
      for (let last = JSON.stringify(nothing); ; ) {
        const leftMs = Math.max(0, end - performance.now());
        await delay(Math.min(lookMs, leftMs), undefined, { signal }).catch(() => {});
        if (signal.aborted) return;
        for (const flow of await network.observe.learned(AbortSignal.timeout(waitMs)))
          flows.set(JSON.stringify(flow), flow);
        const learned = policy();
        const text = JSON.stringify(learned);
        const fragment = fragmentOf(holder);
        const isOver = performance.now() >= end || fragment === undefined;
        // With addresses that it has got meanwhile, too.
        if (!isOver) await this.#set(fragment);
        if (text !== last || isOver) yield learned;
        if (isOver) return;
        last = text;
      }
    } finally {
      this.#now = undefined;
      await this.#queue.run("end", () => this.#end()).catch(() => {});
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#queue[Symbol.asyncDispose]();
  }

  /** Unless another one is learned from by now: its table is this one. */
  async #end(): Promise<void> {
    if (this.#now === undefined) await this.#set(undefined);
  }

  async #set(pod: PluggedFragment | undefined): Promise<void> {
    await this.#parts.network.apply({ kind: "learning", pod }, AbortSignal.timeout(waitMs));
  }
}

function running(
  fragmentOf: LearningParts["fragmentOf"],
  { holder, shown }: LearnedFrom,
): PluggedFragment {
  const fragment = fragmentOf(holder);
  if (fragment !== undefined) return fragment;
  throw new PodnetError("WRONG_STATE", `"${shown}" does not run`, {
    field: "pod",
    hint: "Start it: podnet start",
  });
}
