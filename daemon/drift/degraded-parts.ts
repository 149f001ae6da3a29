import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import type { Clock } from "../../core/clock.ts";
import type { Deviation } from "../../network/model/deviation.ts";
import type { PodId, PodName } from "../../core/names.ts";
import type { JoinPart, Part, PortPart } from "./parts.ts";
import { type Reporting, reportDrift } from "./report.ts";

/** A tap that is missing is told of when it is still missing after so long: its machine may just be ending. */
const missingMs = 2000;
/** What ails a pod whose port cannot be healed, or cannot be looked at. */
const cut = "its network is cut";
const unseen = "its network is not looked after";

interface NamedPod {
  readonly podId: PodId;
  readonly name: PodName;
}

/** What pods say of their own state: a running pod whose network cannot be repaired gives a reason. */
interface PodReasons {
  /** Undefined for a pod that is not there, or whose record is damaged. */
  getUsable(
    id: PodId,
  ): { readonly plan: NamedPod; readonly reason?: string | undefined } | undefined;
  /** The pod runs on, and lacks `what`. */
  ailing(pod: NamedPod, what: string, error: PodnetError): void;
  /** The pod gives no such reason any more; `text` is for its event. */
  well(pod: NamedPod, text: string): void;
}

export interface DegradedPartsParts extends Reporting {
  readonly records: PodReasons;
  readonly clock: Clock;
}

/** Parts of the host that could not be healed, with what was last told of them; they are looked at again every time. */
export class DegradedParts {
  readonly #parts: DegradedPartsParts;
  readonly #sick = new Map<string, { readonly sinceMs: number; told?: string }>();

  constructor(parts: DegradedPartsParts) {
    this.#parts = parts;
  }

  has({ key }: Part): boolean {
    return this.#sick.has(key);
  }

  keys(): string[] {
    return [...this.#sick.keys()];
  }

  delete(key: string): void {
    this.#sick.delete(key);
  }

  /** It is left alone for now, and looked at again when its time has come. */
  waits({ key }: Part): void {
    this.#sick.set(key, { sinceMs: this.#parts.clock.monotonic() });
  }

  /** Something cannot be healed: told once for as long as it is the same. */
  failed(part: Part, found: readonly Deviation[], thrown: PodnetError): void {
    const now = this.#parts.clock.monotonic();
    const sick = this.#sick.get(part.key) ?? { sinceMs: now };
    this.#sick.set(part.key, sick);
    const missing = part.kind !== "network" && thrown.details["errno"] === "ENODEV";
    if (missing && now - sick.sinceMs < missingMs) return;
    const error = toPodnetError(thrown);
    if (isOfPod(part)) this.#ailing(part, error);
    if (sick.told === error.message) return;
    sick.told = error.message;
    reportDrift({ part, found, error, pauseMs: 0 }, this.#parts);
  }

  /** It is as planned; a pod that said otherwise says so no more. */
  recovered(part: Part): void {
    const wasSick = this.#sick.delete(part.key);
    if (!wasSick || !isOfPod(part)) return;
    const { records } = this.#parts;
    const row = records.getUsable(part.podId);
    if (row?.reason?.startsWith(cut) === true || row?.reason?.startsWith(unseen) === true)
      records.well(row.plan, "its network is whole again");
  }

  /** The pod runs on and says what it lacks, unless something else ails it already. */
  #ailing({ podId }: PortPart | JoinPart, error: PodnetError): void {
    const { records } = this.#parts;
    const row = records.getUsable(podId);
    // In a namespace that podnetd cannot enter any more its machine may well go on.
    const what = error.code === "NETNS_UNUSABLE" ? unseen : cut;
    if (row !== undefined && row.reason === undefined) records.ailing(row.plan, what, error);
  }
}

const isOfPod = (part: Part): part is PortPart | JoinPart =>
  part.kind === "port" || part.kind === "join";
