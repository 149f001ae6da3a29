import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Clock } from "../../core/clock.ts";
import type { Deviation } from "../../network/model/deviation.ts";
import type { PodId, PodName } from "../../core/names.ts";
import type { JoinPart, Part, PortPart } from "./parts.ts";
import { Conditions } from "../reconcile/conditions.ts";
import { type Reporting, reportDrift } from "./report.ts";

/**
 * A tap that is missing is reported when it is still missing after so long: its machine may just be
 * ending.
 */
const missingMs = 2000;
/** Reason of a pod whose port cannot be repaired, or cannot be inspected. */
const cut = "its network is cut";
const unseen = "its network is not looked after";

interface NamedPod {
  readonly podId: PodId;
  readonly name: PodName;
}

/** Reasons in the state of pods: a running pod whose network cannot be repaired gives a reason. */
interface PodReasons {
  /** Undefined for a pod that is not there, or whose record is damaged. */
  getUsable(
    id: PodId,
  ): { readonly plan: NamedPod; readonly reason?: string | undefined } | undefined;
  /** The pod runs on, and lacks `what`. */
  degraded(pod: NamedPod, what: string, error: PodnetError): void;
  /** The pod gives no such reason any more; `text` is for its event. */
  recovered(pod: NamedPod, text: string): void;
}

export interface DegradedPartsOptions extends Reporting {
  readonly records: PodReasons;
  readonly clock: Clock;
}

/**
 * The conditions of parts of the host: those that could not be healed are looked at again every
 * time.
 */
export class DegradedParts {
  readonly #parts: DegradedPartsOptions;
  readonly #conditions = new Conditions<string>();

  constructor(parts: DegradedPartsOptions) {
    this.#parts = parts;
  }

  has({ key }: Part): boolean {
    return this.#conditions.isDegraded(key);
  }

  keys(): string[] {
    return Array.from(this.#conditions.degraded(), ([key]) => key);
  }

  delete(key: string): void {
    this.#conditions.recover(key);
  }

  /** It is left alone for now, and looked at again when its time has come. */
  waits({ key }: Part): void {
    this.#conditions.fail(key, undefined, this.#parts.clock.monotonic());
  }

  /** Something cannot be healed: reported once for as long as the error is alike. */
  failed(part: Part, found: readonly Deviation[], thrown: PodnetError): void {
    const error = toPodnetError(thrown);
    const now = this.#parts.clock.monotonic();
    const { sinceMs } = this.#conditions.fail(part.key, error, now);
    const missing = part.kind !== "network" && thrown.details["errno"] === "ENODEV";
    if (missing && now - sinceMs < missingMs) return;
    if (isOfPod(part)) this.#podDegraded(part, error);
    if (this.#conditions.report(part.key))
      reportDrift({ part, found, error, pauseMs: 0 }, this.#parts);
  }

  /** The part is as planned; its pod no longer gives it as a reason. */
  recovered(part: Part): void {
    const wasDegraded = this.#conditions.recover(part.key);
    if (!wasDegraded || !isOfPod(part)) return;
    const { records } = this.#parts;
    const row = records.getUsable(part.podId);
    if (row?.reason?.startsWith(cut) === true || row?.reason?.startsWith(unseen) === true)
      records.recovered(row.plan, "its network is whole again");
  }

  /** The pod runs on and gives the reason, unless it has another one already. */
  #podDegraded({ podId }: PortPart | JoinPart, error: PodnetError): void {
    const { records } = this.#parts;
    const row = records.getUsable(podId);
    // In a namespace that podnetd cannot enter any more its machine may well go on.
    const what = error.code === "NETNS_UNUSABLE" ? unseen : cut;
    if (row !== undefined && row.reason === undefined) records.degraded(row.plan, what, error);
  }
}

const isOfPod = (part: Part): part is PortPart | JoinPart =>
  part.kind === "port" || part.kind === "join";
