import type { Log } from "../../linux/log.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { ruledPart } from "../../network/containers/host-part.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { KeyedLock } from "../reconcile/keyed-lock.ts";
import { WorkQueue } from "../reconcile/work-queue.ts";
import type { HeldPorts } from "../published/held-ports.ts";
import type { AnyAttachment } from "./store.ts";
import type { AttachmentId } from "../store/holder.ts";
import type { AttachmentNetwork } from "./attachment-network.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";
import type { AttachmentRecords } from "./records.ts";
import { removeTranslationRules } from "./translation-rules.ts";

/** From the first released container to the sweep, milliseconds: one sweep costs as much as 200. */
const gatherMs = 300;
/** Between attempts to end traffic or delete links after a failure. */
const backoff = { firstMs: 2000, longestMs: 2000 } as const;

export interface TeardownParts {
  readonly network: AttachmentNetwork;
  readonly host: Pick<HostNetwork, "remove" | "inspectRules">;
  readonly published: Pick<HeldPorts, "release">;
  readonly records: AttachmentRecords;
  readonly locks: KeyedLock<string>;
  readonly log: Log;
  /** A container's part of the host. */
  readonly fragmentOf: (plan: AttachmentPlan) => AttachmentFragment;
  /** From now on drift does not check the container. */
  leaves(id: AttachmentId): void;
}

/**
 * How containers are detached: the row is written, then traffic is cut, and DEL returns. The kernel
 * takes its time for each link, so links are deleted a little later, those of all released
 * containers in one message. The row stays until then, so that a crash forgets none.
 */
export class TeardownQueue {
  readonly #parts: TeardownParts;
  /** Attachments of which only links and connections are left in the kernel. */
  readonly #released = new Map<AttachmentId, AttachmentPlan>();
  /** Containers whose traffic could not be cut; each is retried separately. */
  readonly #releases: WorkQueue<AttachmentId>;
  /**
   * One key: the links of all released containers. Containers that cannot be released do not delay
   * it.
   */
  readonly #sweeps: WorkQueue<"links">;

  constructor(parts: TeardownParts) {
    this.#parts = parts;
    const { log } = parts;
    this.#releases = new WorkQueue({
      name: "container-releases",
      backoff,
      onDegraded: (id, { error }) =>
        log.warn(
          { attachment: id, err: error },
          "A container cannot be detached yet, trying again",
        ),
    });
    this.#sweeps = new WorkQueue({
      name: "container-links",
      backoff,
      onDegraded: (_, { error }) =>
        log.warn({ err: error }, "Links of containers cannot be deleted yet, trying again"),
    });
  }

  /**
   * Cuts an attachment's traffic. Can be repeated. A failure is thrown, and retried in the
   * background.
   */
  async detach(found: AnyAttachment, text: string): Promise<void> {
    const { id, containerId } = found;
    try {
      await this.#release(found, text);
    } catch (thrown) {
      this.#releases.failed(id, () => this.#releaseAgain(id, containerId, text), thrown);
      throw thrown;
    }
    this.#releases.forget(id);
  }

  /** Undoes an attachment that failed. What cannot be undone yet is retried in the background. */
  async undo(plan: AttachmentPlan, thrown: unknown): Promise<void> {
    const { records, log } = this.#parts;
    try {
      const row = records.get(plan.id);
      const why = thrown instanceof Error ? thrown.message : String(thrown);
      if (row !== undefined) await this.detach(row, `not attached: ${why}`);
      await this.sweep();
    } catch (err) {
      log.error(
        { container: plan.containerId, err },
        "What is left of an ADD cannot be undone yet",
      );
    }
  }

  /**
   * Deletes links and rows of all released containers. A failure is thrown, and retried in the
   * background.
   */
  sweep(): Promise<void> {
    return this.#sweeps.run("links", () => this.#sweepAll());
  }

  /** Whether containers wait in the queue. */
  get waits(): boolean {
    return this.#released.size > 0;
  }

  /** Deletes the links of released containers, and leaves what fails to the next start. */
  async close(): Promise<void> {
    await this.#releases.close();
    if (this.waits)
      await this.sweep().catch((err: unknown) => {
        this.#parts.log.warn({ err }, "Links of containers are left to the next start");
      });
    await this.#sweeps.close();
  }

  async #release(found: AnyAttachment, text: string): Promise<void> {
    const { records, network, published } = this.#parts;
    if (this.#released.has(found.id)) return;
    this.#parts.leaves(found.id);
    const row = records.readable(found);
    if (row.state !== "deleting") records.deleting(row, text);
    published.release(row.id);
    await network.release([this.#parts.fragmentOf(row.plan)]);
    this.#released.set(row.id, row.plan);
    this.#sweeps.add("links", () => this.#sweepAll(), gatherMs);
  }

  #releaseAgain(id: AttachmentId, containerId: string, text: string): Promise<void> {
    const { records, locks } = this.#parts;
    return locks.run(containerId, async () => {
      const row = records.get(id);
      if (row !== undefined) await this.#release(row, text);
    });
  }

  async #sweepAll(): Promise<void> {
    const released = [...this.#released.values()];
    if (released.length === 0) return;
    const { network, host, records, fragmentOf } = this.#parts;
    const fragments = released.map(fragmentOf);
    await network.sweep();
    await removeTranslationRules(fragments, host);
    // The next holder of the address would inherit the connections.
    await host.remove(
      { kind: "connections", of: fragments.map(ruledPart) },
      new AbortController().signal,
    );
    records.forget(released);
    for (const { id } of released) this.#released.delete(id);
  }
}
