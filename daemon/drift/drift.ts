import { limited } from "../../core/aborting.ts";
import { guarded } from "../../core/guard.ts";
import type { IfName } from "../../core/names.ts";
import type { RtnetlinkEvent } from "../../linux/rtnetlink/event.ts";
import { watchRtnetlink } from "../../linux/netlink/rtnetlink-events.ts";
import type { LookOptions } from "../../network/containers/attachments.ts";
import type { Deviation } from "../../network/model/deviation.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Inspection } from "../../network/bridge/inspect.ts";
import { type DegradedPartsOptions, DegradedParts } from "./degraded-parts.ts";
import {
  attachmentParts,
  inspectPart,
  isInside,
  joinParts,
  type LiveParts,
  type Part,
  networkParts,
  portParts,
  servicesParts,
} from "./parts.ts";
import { RepairBackoff } from "../reconcile/repair-backoff.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import { reportDrift } from "./report.ts";
import { inspectRules } from "./rules.ts";
import { noSuspects, type Suspects } from "./suspects.ts";

/**
 * From an event to the look it asks for, milliseconds: a deleted bridge brings an event for each of
 * its ports.
 */
const quietMs = 100;
/** Longest a look may take, milliseconds. */
const lookLimitMs = 60_000;
/**
 * Containers, and pods on CNI, that one look inspects, in turn: each costs some 0.5 ms, and the
 * kernel reports no changes of them.
 */
const insideAtOnce = 64;

export interface DriftParts extends DegradedPartsOptions, LiveParts {
  readonly network: Pick<HostNetwork, "inspect" | "inspectRules" | "observe">;
  /** Between looks at what the kernel sends no event for, milliseconds. */
  readonly everyMs: number;
  /** Who reports the kernel's changes; the kernel itself unless given. */
  readonly watch?: typeof watchRtnetlink;
}

/**
 * Keeps the host as planned: notices drift by the kernel's events and by a look every few seconds,
 * repairs it and reports it. Looks run one at a time, and skip parts in backoff.
 */
export class DriftWatch implements AsyncDisposable {
  readonly #parts: DriftParts;
  readonly #repairs = new Map<string, RepairBackoff>();
  readonly #degraded: DegradedParts;
  /**
   * Ports that were inspected since their pod runs: events about a port before that do not report
   * drift.
   */
  readonly #known = new Set<string>();
  /** Containers and joined pods that are due for inspection. */
  #unvisited: string[] = [];
  readonly #over = new AbortController();
  readonly #opened = new DisposableStack();
  #suspects = noSuspects();
  /** One key: there is one look at a time, at all that is suspected by then. */
  readonly #looks: WorkQueue<"look">;
  /** The fingerprint of rules and settings as they were when all was as planned. */
  #clean: string | undefined;

  private constructor(parts: DriftParts) {
    this.#parts = parts;
    this.#degraded = new DegradedParts(parts);
    const { everyMs, log, watch = watchRtnetlink } = parts;
    this.#looks = new WorkQueue({
      name: "drift",
      backoff: { firstMs: Math.min(1000, everyMs), longestMs: everyMs },
      onDegraded: (_, { error }) => log.error({ err: error }, "Failed to look for drift"),
    });
    this.#opened.use(
      watch(
        { groups: ["link", "address4", "address6", "trafficControl"] },
        (event) => this.#heard(event),
        () => this.#suspect({ networks: true, ports: true }),
      ),
    );
    const every = setInterval(
      guarded("netlink", () => this.#suspect({ rules: true })),
      everyMs,
    );
    every.unref();
    this.#opened.defer(() => clearInterval(every));
  }

  /** Begins to watch the network namespace of the calling thread. */
  static open(parts: DriftParts): DriftWatch {
    return new DriftWatch(parts);
  }

  /** Pauses all looks until the returned function is called: a deliberate teardown is not drift. */
  async rest(): Promise<() => void> {
    const resume = await this.#looks.pause();
    return () => {
      this.#clean = undefined;
      this.#suspect({ networks: true, ports: true, rules: true });
      resume();
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#opened.dispose();
    this.#over.abort();
    await this.#looks.close();
  }

  #heard(event: RtnetlinkEvent): void {
    if (event.kind === "address") this.#suspect({ networks: true });
    if (event.kind === "link" || event.kind === "port") {
      this.#suspects.links.add(event.link.name);
      this.#suspect({});
    }
    if (event.kind === "traffic-control") {
      this.#suspects.queues.add(event.index);
      this.#suspect({});
    }
  }

  #suspect(more: Partial<Omit<Suspects, "links" | "queues">>): void {
    Object.assign(this.#suspects, more);
    this.#looks.add("look", () => this.#look(), quietMs);
  }

  async #look(): Promise<void> {
    if (this.#over.signal.aborted) return;
    const suspects = this.#suspects;
    this.#suspects = noSuspects();
    const signal = limited(lookLimitMs, this.#over.signal);
    try {
      await this.#nameQueues(suspects);
      let rules = suspects.rules && (await this.#rulesChanged(signal));
      const clean = this.#clean;
      let networks = await this.#lookAtNetworks(suspects, rules, signal);
      // A program that removed a bridge may have removed rules too; rules that lead to it are
      // checked in this look.
      if (networks.deviated && !rules) {
        rules = clean === undefined || (await this.#fingerprint(signal)) !== clean;
        if (rules) networks = await this.#lookAtNetworks(suspects, rules, signal);
      }
      if (rules && !networks.well) this.#clean = undefined;
      // Without its bridge no port can be healed, and each would say so.
      const { well } = networks;
      await this.#lookAtPorts(suspects, { rules: rules && well, joinsAlone: !well }, signal);
      if (!well) this.#suspects.ports ||= suspects.ports;
    } catch (thrown) {
      if (this.#over.signal.aborted) return;
      this.#clean = undefined;
      // Parts that this look did not reach are inspected in the next one.
      Object.assign(this.#suspects, { networks: true, ports: true });
      throw thrown;
    }
  }

  /** Events about queues and filters name links by their indexes. */
  async #nameQueues({ queues, links }: Suspects): Promise<void> {
    if (queues.size === 0) return;
    for (const name of await this.#parts.network.observe.namesOf([...queues])) links.add(name);
  }

  /** Whether all of them are as planned now, and whether all of them were. */
  async #lookAtNetworks(
    suspects: Suspects,
    rules: boolean,
    signal: AbortSignal,
  ): Promise<{ readonly well: boolean; readonly deviated: boolean }> {
    let well = true;
    let deviated = false;
    for (const part of networkParts(this.#parts.networks)) {
      const named = part.kind === "network" && suspects.links.has(part.fragment.bridge);
      const degraded = suspects.rules && this.#degraded.has(part);
      if (!rules && !degraded && !suspects.networks && !named) continue;
      const linksOnly = !rules && !degraded;
      const { found, error } = await this.#inspect(part, { linksOnly, inside: false }, signal);
      well &&= error === undefined;
      if (found.length === 0) continue;
      deviated = true;
      // A bridge that was made anew has no ports yet.
      suspects.ports = true;
      // This fingerprint is of a drifted state: if it recurred, the next look would take it for
      // unchanged.
      this.#clean = undefined;
    }
    // Almost free when nothing changed; a bridge that was made anew is another one.
    await this.#parts.networks.answerNames();
    return { well, deviated };
  }

  async #lookAtPorts(
    suspects: Suspects,
    { rules, joinsAlone }: { readonly rules: boolean; readonly joinsAlone: boolean },
    signal: AbortSignal,
  ): Promise<void> {
    const { pods, networks, attachments, services } = this.#parts;
    const joins = joinParts(pods);
    const serving = servicesParts(services);
    const all = [...portParts(pods), ...attachmentParts(attachments), ...joins];
    this.#forgetAllBut([...networkParts(networks), ...all, ...serving]);
    for (const part of serving)
      if (rules || this.#degraded.has(part))
        await this.#inspect(part, { linksOnly: false, inside: false }, signal);
    const ports = joinsAlone ? joins : all;
    const visited = new Set(suspects.rules ? this.#nextInside(ports) : []);
    const ruled: Part[] = [];
    for (const part of ports) {
      const degraded = suspects.rules && this.#degraded.has(part);
      const known = this.#known.has(part.key);
      if (rules && part.hasRules === true && !degraded) ruled.push(part);
      const inside = degraded || visited.has(part.key);
      const named = suspects.ports || linksOf(part).some((link) => suspects.links.has(link));
      if (!named && !inside && known) continue;
      await this.#inspect(
        part,
        { linksOnly: !(degraded && part.hasRules === true), inside },
        signal,
      );
      this.#known.add(part.key);
    }
    const seen = await inspectRules(
      ruled,
      this.#parts,
      (part, found) => this.#mayHeal(part, found),
      signal,
    );
    for (const [part, inspection] of seen) this.#conclude(part, inspection);
  }

  /** The parts to inspect in this look: a round of looks covers all of them. */
  #nextInside(ports: readonly Part[]): string[] {
    if (this.#unvisited.length === 0)
      this.#unvisited = ports.filter(isInside).map(({ key }) => key);
    return this.#unvisited.splice(0, insideAtOnce);
  }

  #forgetAllBut(parts: readonly Part[]): void {
    const keys = new Set(parts.map(({ key }) => key));
    for (const kept of [this.#degraded, this.#repairs, this.#known])
      for (const key of kept.keys()) if (!keys.has(key)) kept.delete(key);
  }

  /** Whether rules or settings are others than when all was well; cheap. */
  async #rulesChanged(signal: AbortSignal): Promise<boolean> {
    const now = await this.#fingerprint(signal);
    if (now === this.#clean) return false;
    // As it was before the look that follows: what changes meanwhile is seen next time.
    this.#clean = now;
    return true;
  }

  #fingerprint(signal: AbortSignal): Promise<string> {
    const { network, networks } = this.#parts;
    return network.observe.fingerprint(networks.fragments(), signal);
  }

  async #inspect(
    part: Part,
    depth: Omit<LookOptions, "heal">,
    signal: AbortSignal,
  ): Promise<Inspection> {
    const heal = (seen: readonly Deviation[]): boolean => this.#mayHeal(part, seen);
    const inspection = await inspectPart(part, this.#parts, { heal, ...depth }, signal);
    this.#conclude(part, inspection);
    return inspection;
  }

  #mayHeal(part: Part, found: readonly Deviation[]): boolean {
    const repairs = this.#repairs.get(part.key);
    return repairs === undefined || repairs.allows(found, this.#parts.clock.monotonic());
  }

  #conclude(part: Part, { found, healed, error }: Inspection): void {
    if (error !== undefined) this.#degraded.failed(part, found, error);
    else if (!healed) this.#degraded.waits(part);
    else {
      this.#degraded.recovered(part);
      if (found.length > 0) {
        const repairs = this.#repairs.get(part.key) ?? new RepairBackoff();
        this.#repairs.set(part.key, repairs);
        const pauseMs = repairs.repaired(found, this.#parts.clock.monotonic());
        reportDrift({ part, found, pauseMs }, this.#parts);
      }
    }
  }
}

/** The links whose events are about a port. */
const linksOf = (part: { readonly tap: IfName; readonly ifb?: IfName }): readonly IfName[] =>
  part.ifb === undefined ? [part.tap] : [part.tap, part.ifb];
