import type { Clock } from "../../core/clock.ts";
import type { Log } from "../../linux/log.ts";
import type { LookOptions } from "../../network/containers/attachments.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { hostPart, ruledPart } from "../../network/containers/host-part.ts";
import type { AttachedFragment } from "../../network/model/desired.ts";
import { type Inspection, nothingFound } from "../../network/bridge/inspect.ts";
import type { RunningAttachment, RunningAttachments } from "../drift/parts.ts";
import type { KeyedLock } from "../reconcile/keyed-lock.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import type { HeldPorts } from "../published/held-ports.ts";
import type { AttachmentId } from "../store/holder.ts";
import type { ContainerNames } from "./container-names.ts";
import type { AttachmentNetwork } from "./attachment-network.ts";
import { type AttachmentPlan, portsToHold, afterPlugins } from "./attachment-plan.ts";
import type { Unruled } from "./translation-rules.ts";
import type { AttachmentRecords } from "./records.ts";

/** Between attempts to hold a port that another program has. */
const portsBackoff = { firstMs: 500, longestMs: 5000 } as const;
/**
 * From ADD until the other plugins of a list are assumed to be done, milliseconds: the slowest of
 * them take some seconds.
 */
const laterPluginsMs = 10_000;

export interface ReadyParts {
  readonly network: Pick<AttachmentNetwork, "inspect" | "observeLater" | "guard">;
  readonly published: Pick<HeldPorts, "missing" | "retry">;
  readonly records: Pick<AttachmentRecords, "note" | "completed">;
  readonly names: Pick<ContainerNames, "enter" | "leave">;
  readonly clock: Pick<Clock, "monotonic">;
  /** By container. */
  readonly locks: KeyedLock<string>;
  /** A container's part of the host, with its network as it is now. */
  readonly fragmentOf: (plan: AttachmentPlan) => AttachmentFragment;
  readonly log: Log;
}

interface EnterOptions {
  readonly ageMs?: number;
  readonly fragment?: AttachmentFragment;
}

interface Ready {
  readonly plan: AttachmentPlan;
  /** Its part of the host, with its network as it was when the container last followed it. */
  readonly fragment: AttachmentFragment;
  /** When a plan that waits for later plugins is complete, by the monotonic clock. */
  readonly completeAtMs: number;
  /** What of the container's links cannot be repaired, or why they cannot be observed. */
  trouble: string | undefined;
  /**
   * The rules for connections that other programs translate to the container are written. From then
   * on drift checks them like the rules of published ports.
   */
  ruled: boolean;
  /** The port may send what its fragment says, as far as is known, and nothing else. */
  guarded: boolean;
}

/**
 * The containers that have their networks, in memory: drift checks them often, without reading
 * rows.
 */
export class ReadyAttachments implements RunningAttachments, Unruled {
  readonly #parts: ReadyParts;
  readonly #ready = new Map<AttachmentId, Ready>();
  /** Containers whose published ports are not held: another program has one. */
  readonly #unheld = new WorkQueue<AttachmentId>({
    name: "container-ports",
    backoff: portsBackoff,
  });

  constructor(parts: ReadyParts) {
    this.#parts = parts;
  }

  /**
   * Adds a container that is ready by its row, or its changed plan; holds what host ports it can.
   * An earlier trouble stays until the next look. A plan that waits for later plugins was attached
   * `ageMs` ago. `fragment` is its part of the host where that is not derived now.
   */
  enter(
    plan: AttachmentPlan,
    { ageMs = 0, fragment = this.#parts.fragmentOf(plan) }: EnterOptions = {},
  ): void {
    this.#ready.set(plan.id, {
      plan,
      fragment,
      completeAtMs: this.#parts.clock.monotonic() + laterPluginsMs - ageMs,
      trouble: this.#ready.get(plan.id)?.trouble,
      ruled: this.#ready.get(plan.id)?.ruled ?? plan.published !== undefined,
      guarded: this.#ready.get(plan.id)?.guarded ?? true,
    });
    this.#parts.names.enter(plan);
    const missing = this.#parts.published.missing(plan.id);
    if (missing === undefined) this.#unheld.forget(plan.id);
    else this.#unheld.failed(plan.id, () => this.#holdPorts(plan), missing);
  }

  /** From now on drift does not check the container. */
  leave(id: AttachmentId): void {
    this.#ready.delete(id);
    this.#unheld.forget(id);
    this.#parts.names.leave(id);
  }

  running(): RunningAttachment[] {
    return Array.from(this.#ready.values(), ({ plan: { id, containerId }, fragment, ruled }) => ({
      id,
      containerId,
      tap: fragment.hostLink,
      hasRules: ruled,
    }));
  }

  /** A ready container's part of the host, which drift repair keeps. */
  fragment(id: AttachmentId): AttachmentFragment | undefined {
    return this.#ready.get(id)?.fragment;
  }

  /** The host's parts of all attached containers, with the rules they have by now. */
  fragments(): AttachedFragment[] {
    return [...this.#ready.keys()].flatMap((id) => this.fragmentNow(id) ?? []);
  }

  fragmentNow(id: AttachmentId): AttachedFragment | undefined {
    const ready = this.#ready.get(id);
    if (ready === undefined) return undefined;
    return ready.ruled ? ruledPart(ready.fragment) : hostPart(ready.fragment);
  }

  unruled(): { readonly id: AttachmentId; readonly fragment: AttachedFragment }[] {
    return [...this.#ready.values()]
      .filter(({ ruled }) => !ruled)
      .map(({ plan: { id }, fragment }) => ({ id, fragment: ruledPart(fragment) }));
  }

  ruled(ids: readonly AttachmentId[]): void {
    for (const id of ids) {
      const ready = this.#ready.get(id);
      if (ready !== undefined) ready.ruled = true;
    }
  }

  /**
   * See `RunningAttachments`. A container whose namespace is gone, replaced, or cannot be opened
   * has no drift; the reason is noted, once.
   */
  async inspect(id: AttachmentId, options: LookOptions, signal: AbortSignal): Promise<Inspection> {
    if (options.inside) await this.complete(id, signal);
    const ready = this.#ready.get(id);
    if (ready === undefined) return nothingFound;
    const { network } = this.#parts;
    const seen = await network.inspect(id, () => this.fragment(id), options, signal);
    if (seen.error?.code === "NETNS_UNUSABLE") {
      this.#note(ready, seen.error.message);
      return nothingFound;
    }
    if (seen.error !== undefined) ready.trouble = seen.error.message;
    else if (seen.healed && options.inside) ready.trouble = undefined;
    return seen;
  }

  /**
   * Writes down what later plugins changed of a container, once they are done, or at once if `now`;
   * podnetd keeps these changes from then on. Does nothing where they cannot be observed: the next
   * look tries again. Throws when the signal aborts.
   */
  async complete(id: AttachmentId, signal: AbortSignal, now = false): Promise<void> {
    const ready = this.#ready.get(id);
    if (ready?.fragment.awaitsPlugins === true) await this.#observeLater(ready, signal, now);
    await this.#guard(id, signal);
  }

  async #observeLater(ready: Ready, signal: AbortSignal, now: boolean): Promise<void> {
    const { network, records, clock } = this.#parts;
    if (!now && clock.monotonic() < ready.completeAtMs) return;
    const later = await network
      .observeLater(ready.fragment, signal)
      .catch((thrown: unknown) => throwIfOver(signal, thrown));
    // (The container may be leaving by now, or have a new plan.)
    const { id } = ready.plan;
    if (later === undefined || this.#ready.get(id) !== ready) return;
    const plan = afterPlugins(ready.plan, later);
    records.completed(plan);
    ready.guarded = false;
    this.enter(plan);
  }

  /**
   * What later plugins may have changed is fixed from now on. Where that fails, the next look tries
   * again: drift repair looks at rules only after another program changed some.
   */
  async #guard(id: AttachmentId, signal: AbortSignal): Promise<void> {
    const ready = this.#ready.get(id);
    if (ready === undefined || ready.guarded) return;
    const { network } = this.#parts;
    try {
      await network.guard(() => this.#ready.get(id)?.fragment, signal);
      ready.guarded = true;
    } catch (thrown) {
      throwIfOver(signal, thrown);
    }
  }

  /** Why a container is degraded and podnetd cannot repair it now. */
  troubleOf(id: AttachmentId): string | undefined {
    return this.#ready.get(id)?.trouble ?? this.#unheld.error(id)?.message;
  }

  /** Tries nothing again. */
  close(): Promise<void> {
    return this.#unheld.close();
  }

  #holdPorts({ id, containerId }: AttachmentPlan): Promise<void> {
    const { published, records, log, locks } = this.#parts;
    return locks.run(containerId, async () => {
      // The container may have been detached meanwhile.
      const plan = this.#ready.get(id)?.plan;
      if (plan === undefined) return;
      await published.retry(id, portsToHold(plan));
      log.info({ container: containerId }, "Its published ports are held");
      records.note(plan, "its published ports are held");
    });
  }

  #note(ready: Ready, trouble: string): void {
    if (ready.trouble === trouble) return;
    ready.trouble = trouble;
    const { records, log } = this.#parts;
    log.warn({ container: ready.plan.containerId }, `Not looked after any more: ${trouble}`);
    records.note(ready.plan, trouble);
  }
}

/**
 * Throws if the signal has aborted. Other errors are left to the look that follows, which reports
 * them.
 */
function throwIfOver(signal: AbortSignal, thrown: unknown): undefined {
  if (signal.aborted) throw thrown;
  return undefined;
}
