import { guarded } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";
import { ruledPart } from "../../network/containers/host-part.ts";
import type { HostNetwork } from "../../network/bridge/ensure.ts";
import type { KeyedLock } from "../reconcile/keyed-lock.ts";
import type { HeldPorts } from "../published/held-ports.ts";
import type { AnyAttachment } from "./store.ts";
import type { AttachmentId } from "../store/holder.ts";
import type { AttachmentNetwork } from "./attachment-network.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";
import type { AttachmentRecords } from "./records.ts";
import { removeTranslationRules } from "./translation-rules.ts";

/** From the first that waits to the burial of all, milliseconds: one costs as much as two hundred. */
const gatherMs = 300;
/** The same after one that has failed. */
const againMs = 2000;

export interface TeardownParts {
  readonly network: AttachmentNetwork;
  readonly host: Pick<HostNetwork, "endFlows" | "inspectRules">;
  readonly published: Pick<HeldPorts, "release">;
  readonly records: AttachmentRecords;
  readonly locks: KeyedLock<string>;
  readonly log: Log;
  /** From now on what is missing of it is no drift. */
  leaves(id: AttachmentId): void;
}

interface Failed {
  /** Why it is to end. */
  readonly text: string;
  /** When it is tried again, of the monotonic clock. */
  readonly againMs: number;
}

/**
 * How attachments go: the row says so, then traffic ends, which is what a runtime waits for; the kernel's links, each of
 * which takes its time, are ended a little later and all at once. The row stays until then, so that a crash forgets none.
 */
export class TeardownQueue {
  readonly #parts: TeardownParts;
  /** Of which only links and the host's memory of conversations are left. */
  readonly #waiting = new Map<AttachmentId, AttachmentPlan>();
  /** What could not be ended, be it that its row cannot say so. */
  readonly #failed = new Map<AttachmentId, Failed>();
  /** What is tried again just now. */
  readonly #trying = new Set<AttachmentId>();
  #timer: NodeJS.Timeout | undefined;
  /** When it goes off. */
  #timerMs = 0;
  #burying: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(parts: TeardownParts) {
    this.#parts = parts;
  }

  /** Ends an attachment's traffic. Can be repeated. What fails is tried again by itself, and thrown. */
  async detach(found: AnyAttachment, text: string): Promise<void> {
    const { records, network, published } = this.#parts;
    if (this.#waiting.has(found.id)) return;
    const row = records.readable(found);
    this.#parts.leaves(row.id);
    try {
      if (row.state !== "deleting") records.deleting(row, text);
      published.release(row.id);
      await network.release([row.plan.fragment]);
    } catch (thrown) {
      this.#failed.set(row.id, { text, againMs: performance.now() + againMs });
      this.#later(againMs);
      throw thrown;
    }
    this.#failed.delete(row.id);
    this.#waiting.set(row.id, row.plan);
    this.#later(gatherMs);
  }

  /** Leaves nothing of an attachment that was not to be. What cannot be undone yet is tried again by itself. */
  async undo(plan: AttachmentPlan, thrown: unknown): Promise<void> {
    const { records, log } = this.#parts;
    try {
      const row = records.get(plan.id);
      const why = thrown instanceof Error ? thrown.message : String(thrown);
      if (row !== undefined) await this.detach(row, `not attached: ${why}`);
      await this.bury();
    } catch (err) {
      log.error(
        { container: plan.containerId, err },
        "What is left of an ADD cannot be undone yet",
      );
    }
  }

  /** Ends the links of all that wait, and forgets them. */
  bury(): Promise<void> {
    const mine = this.#burying.then(() => this.#buryAll());
    this.#burying = mine.catch(() => {});
    return mine;
  }

  async #buryAll(): Promise<void> {
    const dead = [...this.#waiting.values()];
    if (dead.length === 0) return;
    const { network, host, records } = this.#parts;
    await network.sweep();
    await removeTranslationRules(dead, host);
    // Whoever has an address next would go on with them.
    await host.endFlows(dead.map(({ fragment }) => ruledPart(fragment)));
    records.forget(dead);
    for (const { id } of dead) this.#waiting.delete(id);
  }

  /** Whether something is on its way out. */
  get waits(): boolean {
    return this.#waiting.size > 0;
  }

  /** Goes on with what is under way, in so many milliseconds, or sooner where that was asked for. */
  #later(ms: number): void {
    const atMs = performance.now() + ms;
    if (this.#closed || (this.#timer !== undefined && this.#timerMs <= atMs)) return;
    clearTimeout(this.#timer);
    this.#timerMs = atMs;
    this.#timer = setTimeout(
      guarded("cni", () => {
        this.#timer = undefined;
        // Neither waits for the other: one that cannot be ended keeps none that has ended from its burial.
        this.bury().catch((err: unknown) => this.#failing(err));
        this.#endLeft().catch((err: unknown) => this.#failing(err));
      }),
      ms,
    ).unref();
  }

  #failing(err: unknown): void {
    this.#parts.log.warn({ err }, "What containers had cannot be taken away yet, trying again");
    this.#later(againMs);
  }

  /** Ends what could not be ended before, each by itself, and throws the first failure. */
  async #endLeft(): Promise<void> {
    const now = performance.now();
    const { records } = this.#parts;
    // (Of what could not be written down as leaving the row says nothing.)
    const unwritten = [...this.#failed.keys()].flatMap((id) => {
      const row = records.get(id);
      return row === undefined || row.state === "deleting" ? [] : row;
    });
    const left = [...records.leaving(), ...unwritten].filter(
      ({ id }) => !this.#waiting.has(id) && !this.#trying.has(id),
    );
    const dueMs = ({ id }: AnyAttachment): number => this.#failed.get(id)?.againMs ?? now;
    const later = left.filter((row) => dueMs(row) > now);
    if (later.length > 0) this.#later(Math.min(...later.map(dueMs)) - now);
    const due = left.filter((row) => dueMs(row) <= now);
    const ends = await Promise.allSettled(due.map((row) => this.#endAgain(row)));
    const failed = ends.find(({ status }) => status === "rejected");
    if (failed?.status === "rejected") throw failed.reason;
  }

  async #endAgain({ id, containerId }: AnyAttachment): Promise<void> {
    const { records, locks } = this.#parts;
    this.#trying.add(id);
    try {
      await locks.run(containerId, async () => {
        const row = records.get(id);
        if (row !== undefined) await this.detach(row, this.#failed.get(id)?.text ?? "");
      });
    } finally {
      this.#trying.delete(id);
    }
  }

  /** Buries what waits, and leaves the rest to the next start. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.bury().catch((err: unknown) => {
      this.#parts.log.warn({ err }, "Links of containers are left to the next start");
    });
  }
}
