import type { Journal } from "../events/journal.ts";
import { eventsOfKind } from "../events/store.ts";
import type { Database } from "../store/database.ts";
import { CounterWatch, type CounterWatchParts } from "../traffic/counter-watch.ts";
import type { Counted } from "../traffic/drop-reports.ts";
import type { DenialOwner } from "./denial-owner.ts";
import { type Denial, type Denials, keyOf } from "./denials.ts";

type CountedDenial = Denial & Counted;

export interface DenialWatchParts
  extends Pick<CounterWatchParts<CountedDenial>, "clock" | "log" | "everyMs" | "time"> {
  readonly db: Database;
  readonly journal: Journal;
  readonly denials: Pick<Denials, "list">;
  /** Undefined for a pod or container that has gone. */
  readonly ownerOf: (holder: string) => DenialOwner | undefined;
  /** Gets all counts of each look. */
  readonly audit?: ((denials: readonly Denial[]) => void) | undefined;
}

const counted = (denial: Denial): CountedDenial => ({ ...denial, key: keyOf(denial) });

/**
 * Reports what policies deny of pods and containers, by events: each rule once for as long as a pod
 * has it, at most one event a minute about one of them.
 */
export const watchDenials = (parts: DenialWatchParts): CounterWatch<CountedDenial> =>
  new CounterWatch({
    ...parts,
    stored: eventsOfKind(parts.db, "denial"),
    reportedBy: ({ data }) =>
      (data.denials ?? []).map((denial) => [denial.holder, counted(denial)] as const),
    failed: "Failed to count what policies deny",
    count: async (signal) => {
      const all = await parts.denials.list(signal);
      parts.audit?.(all);
      return all.map(counted);
    },
    ownersOf:
      () =>
      ({ holder }) =>
        parts.ownerOf(holder) === undefined ? undefined : holder,
    report: (some) => report(parts, some),
  });

function report({ journal, log, ownerOf }: DenialWatchParts, some: readonly CountedDenial[]): void {
  const { container, pod } = ownerOf(some[0]?.holder ?? "") ?? {};
  const about = pod === undefined ? {} : { podId: pod.id, podName: pod.name };
  const denials = some.map(({ key: _key, ...denial }): Denial => denial);
  const text = denialText(container, denials);
  log.info({ ...about, denials }, "Policies denied what a pod or container asked for");
  journal.emit({ kind: "denial", ...about, data: { text, denials } });
}

/** What was denied, in one line: `3 packets denied (egress) by builds/no-lan: the reason`. Pure. */
export function denialText(container: string | undefined, denials: readonly Denial[]): string {
  const texts = denials.map(({ direction, policy, rule, reason, unit, count }) => {
    const why = reason === "" ? "" : `: ${reason}`;
    return `${count} ${count === 1 ? unit.slice(0, -1) : unit} denied (${direction}) by ${policy}/${rule}${why}`;
  });
  return `${container === undefined ? "" : `${container}: `}${texts.join("; ")}`;
}
