import { limited, throwIfAborted } from "../../core/aborting.ts";
import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { guarded } from "../../core/guard.ts";
import type { NetworkName } from "../../core/names.ts";
import type { CniResult } from "../../cni/protocol/result.ts";
import type { BootMoment } from "../../linux/processes/boot-moment.ts";
import type { Log } from "../../linux/log.ts";
import type { AttachmentFragment } from "../../network/containers/desired.ts";
import { hostPart } from "../../network/containers/host-part.ts";
import type { AttachedFragment } from "../../network/model/desired.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import { KeyedLock } from "../reconcile/keyed-lock.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { HeldPorts } from "../published/held-ports.ts";
import { type AttachmentRow, isDamagedAttachment, type AttachmentName } from "./attachment-rows.ts";
import type { AnyAttachment } from "./store.ts";
import { resultOf } from "./cni/answer.ts";
import { attachmentFragment } from "./attachment-fragment.ts";
import type { AttachmentNetwork } from "./attachment-network.ts";
import {
  type AttachmentPlan,
  inNamespace,
  portsToHold,
  awaitingPlugins,
} from "./attachment-plan.ts";
import { compareResult, fragmentAsReported } from "./cni/compare-result.ts";
import { TeardownQueue } from "./teardown-queue.ts";
import { type AttachmentWorld, gatherAttachment } from "./plan/gather.ts";
import { whyLost } from "./namespace.ts";
import { planAttachment } from "./plan/plan.ts";
import type { AttachmentRecords } from "./records.ts";
import { ReadyAttachments } from "./ready.ts";
import { recoverAttachments } from "./recover.ts";
import { changedByNetwork, followNetwork, type FollowParts } from "./follow-network.ts";
import { attached, ending, unknown } from "./refusals.ts";
import { refuseUnready } from "./status.ts";
import type { ContainerNames } from "./container-names.ts";
import { TranslationRules } from "./translation-rules.ts";
import type {
  AddRequest,
  AttachmentRequest,
  DelRequest,
  NetworkRequest,
} from "./cni/attachment-request.ts";

/** Longest an ADD or CHECK may take, milliseconds: kubelet's runtimes wait longer. */
const attachMs = 60_000;

export interface AttachmentsParts extends AttachmentWorld {
  readonly network: AttachmentNetwork;
  readonly host: Pick<HostNetwork, "remove" | "inspectRules">;
  readonly clock: Clock;
  /** The moment that is now; see `AttachmentPlan.claimed`. */
  readonly moment: () => BootMoment;
  readonly names: ContainerNames;
  readonly published: Pick<HeldPorts, "hold" | "adopt" | "release" | "missing" | "retry">;
  readonly records: AttachmentRecords;
  readonly log: Log;
}

/**
 * Connects containers to networks. Containers are worked on concurrently, the requests of one
 * container in order. The rows are the truth; in memory are only the sockets of host ports.
 */
export class Attachments implements AsyncDisposable {
  readonly #parts: AttachmentsParts;
  /**
   * By container: CNI lets no two operations of one overlap, and a runtime that gave up on one asks
   * for the next.
   */
  readonly #locks = new KeyedLock<string>();
  readonly #teardowns: TeardownQueue;
  /** Attached containers. */
  readonly ready: ReadyAttachments;
  readonly #translations: TranslationRules;
  readonly #over = new AbortController();
  #refusing = false;

  constructor(parts: AttachmentsParts) {
    this.#parts = parts;
    const fragmentOf = (plan: AttachmentPlan): AttachmentFragment => this.fragmentOf(plan);
    this.ready = new ReadyAttachments({ ...parts, locks: this.#locks, fragmentOf });
    this.#translations = new TranslationRules({ ...parts, ready: this.ready });
    this.#teardowns = new TeardownQueue({
      ...parts,
      locks: this.#locks,
      fragmentOf,
      leaves: (id) => this.ready.leave(id),
    });
  }

  /** The attachments whose records are readable. */
  list(): AttachmentRow[] {
    return this.#parts.records.list();
  }

  /** All attachments, the damaged ones included. */
  listAny(): AnyAttachment[] {
    return this.#parts.records.listAny();
  }

  /**
   * The row to show an attachment by; for a damaged one it is made of the other columns and tables.
   */
  readable(row: AnyAttachment): AttachmentRow {
    return this.#parts.records.readable(row);
  }

  /** Why an attachment is degraded and podnetd cannot repair it now; undefined where it is not. */
  troubleOf(row: AnyAttachment): string | undefined {
    return isDamagedAttachment(row) ? row.damage.message : this.ready.troubleOf(row.id);
  }

  /** A container's part of the host, with its network as it is now. */
  fragmentOf(plan: AttachmentPlan): AttachmentFragment {
    return attachmentFragment(plan, this.#parts.networks.list(), this.#parts.config.cni);
  }

  /** The host's parts of all containers that have their network or are getting it. */
  hostParts(): readonly AttachedFragment[] {
    return this.list()
      .filter(({ state }) => state !== "deleting")
      .map(({ plan }) => hostPart(this.fragmentOf(plan)));
  }

  /** The attachment that a runtime names so. */
  named(name: AttachmentName): AnyAttachment | undefined {
    return this.#parts.records.named(name);
  }

  /**
   * Attaches a container to a network. Throws `NAME_IN_USE` when the name is attached already, and
   * the errors of the planner and of the host. After an error or an abort nothing is left of the
   * attachment.
   */
  add(request: AttachmentRequest, signal: AbortSignal): Promise<CniResult> {
    return this.#locks.run(request.containerId, async () => {
      this.#refuseEnding();
      const limit = limited(attachMs, AbortSignal.any([signal, this.#over.signal]));
      throwIfAborted(limit, "The ADD");
      await this.#refuseAttached(request);
      const { network, networks, published, records, config } = this.#parts;
      const plan = await this.#claim(request);
      try {
        await published.hold(plan.id, portsToHold(plan));
        const definitions = networks.list();
        const fragmentOf = (each: AttachmentPlan): AttachmentFragment =>
          attachmentFragment(each, definitions, config.cni);
        // The link may get another MAC as soon as ADD is answered.
        const awaiting = fragmentOf(awaitingPlugins(plan));
        const observed = await network.ensure(fragmentOf(plan), limit, awaiting);
        throwIfAborted(limit, "The ADD");
        const result = resultOf(plan, observed, request.config.prevResult);
        const attached = awaitingPlugins(inNamespace(plan, observed.namespace));
        records.ready(attached);
        // (Its network may have another definition by now, which it follows in its turn.)
        this.ready.enter(attached, { fragment: fragmentOf(attached) });
        this.#translations.writeSoon();
        return result;
      } catch (thrown) {
        await this.#teardowns.undo(plan, thrown);
        throw thrown;
      }
    });
  }

  /**
   * Detaches a container from a network. Idempotent. Skips the row if `isMeant` is false once the
   * lock is held. Resolves once the container's traffic is cut.
   */
  delete(request: DelRequest, isMeant = (_row: AnyAttachment): boolean => true): Promise<void> {
    return this.#locks.run(request.containerId, async () => {
      const row = this.#parts.records.named(request);
      // A DEL means its runtime's network only: another network's attachment is another DEL's.
      if (row?.config === request.config.name && isMeant(row))
        await this.#teardowns.detach(row, "detached");
    });
  }

  /**
   * Throws `INTERFACE_NOT_FOUND`, and `VERIFY_MISMATCH` naming the differences from ADD's result.
   */
  check(request: AddRequest, signal: AbortSignal): Promise<void> {
    return this.#locks.run(request.containerId, async () => {
      const row = this.#parts.records.named(request);
      if (row?.state !== "ready" || row.config !== request.config.name) throw unknown(request);
      if (isDamagedAttachment(row)) throw row.damage;
      const planned = this.fragmentOf(row.plan);
      const found = [
        ...compareResult(row.plan, request),
        ...(await this.#parts.network.check(
          fragmentAsReported(planned, request),
          limited(attachMs, signal),
          planned,
        )),
      ];
      const [first] = found;
      if (first === undefined) return;
      const more = found.length > 1 ? `, and ${found.length - 1} more` : "";
      throw new PodnetError(
        "VERIFY_MISMATCH",
        `The container's network is changed: ${first}${more}`,
        {
          hint: "podnetd puts it right by itself, if drift_s is not 0; what it cannot put right is reported: podnet cni list",
          details: { count: found.length },
        },
      );
    });
  }

  /**
   * Removes all attachments of the runtime's network that it does not name; goes on past
   * failures, and throws the first.
   */
  async collect({ config }: NetworkRequest): Promise<void> {
    const key = ({ containerId, ifName }: AttachmentName): string => `${containerId} ${ifName}`;
    const valid = new Set(config.validAttachments?.map(key));
    const stale = this.listAny().filter(
      (row) => row.config === config.name && !valid.has(key(row)),
    );
    await this.#detachAll(stale, "collected");
  }

  /** Throws why no container could be attached now. */
  status({ config }: NetworkRequest): void {
    this.#refuseEnding();
    refuseUnready(config.network, this.#parts);
  }

  /**
   * Recovers containers after a start, before podnetd serves requests: unfinished ADDs are undone,
   * unfinished DELs are completed, and ready containers are repaired.
   */
  async recover(sameBoot: boolean): Promise<void> {
    const parts = { ...this.#parts, ready: this.ready, teardowns: this.#teardowns };
    await recoverAttachments(parts, sameBoot, this.#over.signal);
    await this.#translations.write();
  }

  /** Applies a network update to the network's containers. */
  follow(name: NetworkName): Promise<void> {
    return followNetwork(this.#parts.networks.find(name), this.#following());
  }

  /**
   * The ports as such an update would leave them, with the network's new definition. Takes nothing.
   */
  changedPorts(network: NetworkDefinition): readonly AttachedFragment[] {
    return changedByNetwork(network, this.#following());
  }

  /** Takes all of them away. Throws the first failure. */
  async down(): Promise<AnyAttachment[]> {
    const rows = this.listAny();
    await this.#detachAll(rows, "podnet down");
    await this.#teardowns.sweep();
    return rows;
  }

  /** Takes no new ones from here on, until they are admitted again. */
  refuse(): void {
    this.#refusing = true;
  }

  admit(): void {
    this.#refusing = false;
  }

  /** Refuses new requests, waits up to `graceMs` for those under way, and then undoes them. */
  async close(graceMs: number): Promise<void> {
    this.#refusing = true;
    const limit = setTimeout(
      guarded("cni", () => this.#over.abort(ending())),
      graceMs,
    ).unref();
    await this.#locks.idle();
    await Promise.all([this.#translations.close(), this.ready.close()]);
    clearTimeout(limit);
    await this.#teardowns.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close(0);
  }

  /** Goes on past failures, and throws the first. */
  async #detachAll(rows: readonly AnyAttachment[], text: string): Promise<void> {
    const ends = await Promise.allSettled(
      rows.map(({ id, containerId }) =>
        this.#locks.run(containerId, async () => {
          const row = this.#parts.records.get(id);
          if (row !== undefined) await this.#teardowns.detach(row, text);
        }),
      ),
    );
    const failed = ends.find(({ status }) => status === "rejected");
    if (failed?.status === "rejected") throw failed.reason;
  }

  /**
   * Plans an ADD and claims what the plan takes, in one go. When that fails while released
   * containers wait in the teardown queue, their links are deleted first, and the claim is
   * repeated.
   */
  async #claim(request: AttachmentRequest): Promise<AttachmentPlan> {
    // Nothing comes in between: no two plans have the same address.
    const claim = (): AttachmentPlan => {
      const snapshot = gatherAttachment(request, this.#parts);
      const claimed = this.#parts.moment();
      const plan = { ...planAttachment(request, snapshot), claimed };
      this.#parts.records.claim(plan);
      return plan;
    };
    try {
      return claim();
    } catch (thrown) {
      if (!this.#teardowns.waits) throw thrown;
      await this.#teardowns.sweep();
      return claim();
    }
  }

  /**
   * Throws when the container is attached. If it is being removed, or its namespace is gone or
   * replaced at its path, it is detached instead.
   */
  async #refuseAttached(request: AttachmentRequest): Promise<void> {
    const { records } = this.#parts;
    const row = records.named(request);
    if (row === undefined) return;
    const lost = whyLost(isDamagedAttachment(row) ? row : row.plan, this.#parts.network);
    if (row.state === "ready" && lost === undefined) throw attached(row);
    await this.#teardowns.detach(row, lost ?? "not attached");
    await this.#teardowns.sweep();
    if (records.named(request) !== undefined) throw attached(row);
  }

  #following(): FollowParts {
    const { ready } = this;
    const fragmentOf = (plan: AttachmentPlan): AttachmentFragment => this.fragmentOf(plan);
    const settings = this.#parts.config.cni;
    return { ...this.#parts, ready, locks: this.#locks, fragmentOf, settings };
  }

  #refuseEnding(): void {
    if (this.#refusing) throw ending();
  }
}
