import { setTimeout as delay } from "node:timers/promises";
import type { Ip } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Log } from "../../linux/log.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Learned } from "../../network/firewall/nftables/learn-table.ts";
import type { PluggedFragment } from "../../network/model/desired.ts";
import type { DomainName } from "../../policy/domain.ts";
import { learnedPolicy, type LearnedPolicy } from "../../policy/learned.ts";

export interface LearningParts {
  readonly network: Pick<HostNetwork, "apply" | "observe">;
  /** The part of the host of a pod that runs. */
  readonly fragmentOf: (pod: string) => PluggedFragment | undefined;
  readonly log: Log;
}

/** The pod that is learned from. */
interface Learner {
  readonly pod: string;
  readonly names: Map<DomainName, Set<Ip>>;
}

/** Names, and addresses of a name, that are noted. */
const mostNames = 2000;
const mostAddresses = 64;
/** Between two looks, and longest that one may wait for changes of the host, milliseconds. */
const lookMs = 1000;
const waitMs = 10_000;

/**
 * Learns what a pod uses: connections are noted by the kernel, and names by the resolver and the
 * relay. One pod at a time, so that what one pod fills is its own. It ends with its caller; what a
 * podnetd that was killed left of it in the kernel is an orphan of the next start.
 */
export class Learning {
  readonly #parts: LearningParts;
  #now: Learner | undefined;

  constructor(parts: LearningParts) {
    this.#parts = parts;
  }

  isLearning(holder: string): boolean {
    return this.#now?.pod === holder;
  }

  /** A holder has resolved a name, or said it. */
  addName(holder: string, name: DomainName, addresses: readonly Ip[]): void {
    const { pod, names = new Map<DomainName, Set<Ip>>() } = this.#now ?? {};
    if (pod !== holder || (!names.has(name) && names.size >= mostNames)) return;
    const known = names.get(name) ?? new Set();
    names.set(name, known);
    for (const ip of addresses) if (known.size < mostAddresses) known.add(ip);
  }

  /**
   * The policy that allows what a pod used so far, whenever it has used more, and once more at the
   * end: when the time is over, or the pod does not run any more. Throws `LIMIT_REACHED` while
   * another pod is learned from, `WRONG_STATE`, and what the host refuses.
   */
  async *learn(
    pod: { readonly id: string; readonly name: string },
    forMs: number | undefined,
    signal: AbortSignal,
  ): AsyncGenerator<LearnedPolicy> {
    const { network, fragmentOf } = this.#parts;
    if (this.#now !== undefined)
      throw new PodnetError("LIMIT_REACHED", "Another pod is learned from", {
        hint: "Wait until podnet policy learn has ended there",
      });
    const learner: Learner = { pod: pod.id, names: new Map() };
    this.#now = learner;
    const flows = new Map<string, Learned>();
    const end = performance.now() + (forMs ?? Infinity);
    try {
      await this.#set(running(fragmentOf, pod));
      for (let last = ""; ; ) {
        const leftMs = Math.max(0, end - performance.now());
        await delay(Math.min(lookMs, leftMs), undefined, { signal }).catch(() => {});
        if (signal.aborted) return;
        for (const flow of await network.observe.learned(AbortSignal.timeout(waitMs)))
          flows.set(JSON.stringify(flow), flow);
        const { names } = learner;
        const learned = learnedPolicy({ pod: pod.name, names, flows: [...flows.values()] });
        const text = JSON.stringify(learned);
        const isOver = performance.now() >= end || fragmentOf(pod.id) === undefined;
        if (text !== last || isOver) yield learned;
        if (isOver) return;
        last = text;
      }
    } finally {
      this.#now = undefined;
      await this.#set(undefined).catch((err: unknown) =>
        this.#parts.log.warn({ err }, "Failed to remove what notes a pod's connections"),
      );
    }
  }

  async #set(pod: PluggedFragment | undefined): Promise<void> {
    await this.#parts.network.apply({ kind: "learning", pod }, AbortSignal.timeout(waitMs));
  }
}

function running(
  fragmentOf: LearningParts["fragmentOf"],
  { id, name }: { readonly id: string; readonly name: string },
): PluggedFragment {
  const fragment = fragmentOf(id);
  if (fragment !== undefined) return fragment;
  throw new PodnetError("WRONG_STATE", `Pod "${name}" does not run`, {
    field: "pod",
    hint: "Start it: podnet start",
  });
}
