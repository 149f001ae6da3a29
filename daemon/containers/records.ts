import type { Clock } from "../../core/clock.ts";
import { laterText } from "../../network/containers/later.ts";
import type { Journal } from "../events/journal.ts";
import type { Addresses } from "../ipam/addresses.ts";
import { type AttachmentRow, isDamagedAttachment, type AttachmentName } from "./attachment-rows.ts";
import {
  type AnyAttachment,
  attachmentNamed,
  attachmentsIn,
  deleteAttachment,
  getAttachment,
  insertAttachment,
  listAnyAttachments,
  listAttachments,
  setAttachmentPlan,
  setAttachmentState,
} from "./store.ts";
import type { AttachmentId } from "../store/holder.ts";
import type { Database } from "../store/database.ts";
import { insertPorts } from "../published/store.ts";
import { type AttachmentPlan, containerText } from "./attachment-plan.ts";
import { remainsOf } from "./remains.ts";

export interface AttachmentRecordsParts {
  readonly db: Database;
  readonly journal: Journal;
  readonly addresses: Addresses;
  readonly clock: Clock;
}

/**
 * The records of attachments. Each change is one transaction, which need not survive a power loss:
 * containers do not survive one either, and the next start removes the rows that are left.
 */
export class AttachmentRecords {
  readonly #parts: AttachmentRecordsParts;

  constructor(parts: AttachmentRecordsParts) {
    this.#parts = parts;
  }

  /** The attachments whose records are readable. */
  list(): AttachmentRow[] {
    return listAttachments(this.#parts.db);
  }

  /** All attachments, the damaged ones included. */
  listAny(): AnyAttachment[] {
    return listAnyAttachments(this.#parts.db);
  }

  /** Containers whose DEL is under way. */
  leaving(): AnyAttachment[] {
    return attachmentsIn(this.#parts.db, "deleting");
  }

  get(id: AttachmentId): AnyAttachment | undefined {
    return getAttachment(this.#parts.db, id);
  }

  named(name: AttachmentName): AnyAttachment | undefined {
    return attachmentNamed(this.#parts.db, name);
  }

  /**
   * The row to show or to remove an attachment by; for a damaged one it is made of the other
   * columns and tables.
   */
  readable(row: AnyAttachment): AttachmentRow {
    return isDamagedAttachment(row) ? remainsOf(this.#parts.db, row) : row;
  }

  /**
   * Takes name, addresses and host ports: from here on the attachment exists, and nothing on the
   * host has changed yet.
   */
  claim(plan: AttachmentPlan): void {
    const { db, addresses, clock } = this.#parts;
    try {
      db.transaction(
        () => {
          insertAttachment(db, plan, clock.now());
          addresses.insert(plan);
          const holder = { kind: "attachment", id: plan.id } as const;
          insertPorts(db, holder, plan.published);
          insertPorts(db, holder, plan.forwarders);
        },
        "claim attachment",
        lasting,
        "new",
      );
    } catch (thrown) {
      // A commit that throws and is there counts, as those with events do (journal.ts).
      if (this.get(plan.id) === undefined) throw thrown;
    }
    addresses.taken(plan);
  }

  /** Writes down that the container has its network, by this plan, and emits an event. */
  ready(plan: AttachmentPlan): void {
    const { db, journal, clock } = this.#parts;
    journal.transact(
      "attached",
      (emit) => {
        setAttachmentPlan(db, plan, clock.now());
        setAttachmentState(db, plan.id, "ready", clock.now());
        emit({ kind: "attachment", data: { text: textOf(plan, "attached") } });
      },
      { lasting },
    );
  }

  /** Writes down which namespace the container is in. Emits no event. */
  identified(plan: AttachmentPlan): void {
    const { db, clock } = this.#parts;
    const write = (): void => setAttachmentPlan(db, plan, clock.now());
    db.transaction(write, "identify attachment", lasting);
  }

  /** Writes down that later plugins are done, and emits an event if they changed anything. */
  completed(plan: AttachmentPlan): void {
    const { db, journal, clock } = this.#parts;
    const made = laterText(plan.later ?? {});
    journal.transact(
      "reconcile attachment",
      (emit) => {
        setAttachmentPlan(db, plan, clock.now());
        if (made === undefined) return;
        const text = textOf(plan, `left as it was made after podnet's ADD: ${made}`);
        emit({ kind: "attachment", data: { text } });
      },
      { lasting },
    );
  }

  /**
   * Begins to remove a container: its addresses are quarantined, and the next start completes the
   * removal. They are handed out after `forget` at the earliest, when nothing answers for them.
   */
  deleting({ plan }: AttachmentRow, text: string): void {
    const { db, journal, addresses, clock } = this.#parts;
    journal.transact(
      "detaching",
      (emit) => {
        setAttachmentState(db, plan.id, "deleting", clock.now());
        addresses.free([plan]);
        emit({ kind: "attachment", data: { text: textOf(plan, text) } });
      },
      { lasting, need: "essential" },
    );
  }

  /** Nothing of these is left: their rows and host ports go. Follows `deleting`. */
  forget(plans: readonly AttachmentPlan[]): void {
    const { db, addresses } = this.#parts;
    db.transaction(
      () => {
        for (const { id } of plans) deleteAttachment(db, id);
      },
      "forget attachments",
      lasting,
      "essential",
    );
    addresses.freed(plans);
  }

  /** Emits an event that changes nothing. */
  note(plan: AttachmentPlan, text: string): void {
    this.#parts.journal.emit({ kind: "attachment", data: { text: textOf(plan, text) } });
  }
}

const lasting = "boot";

const textOf = (plan: AttachmentPlan, what: string): string =>
  `${containerText(plan)} (${plan.addresses.join(", ")}): ${what}`;
