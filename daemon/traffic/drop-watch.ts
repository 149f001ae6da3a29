import type { PodId, PodName } from "../../core/names.ts";
import type { HostObservations } from "../../network/bridge/observations.ts";
import type { Drop } from "../../network/firewall/nftables/drops.ts";
import type { Refusal } from "../../network/firewall/nftables/refusals.ts";
import type { Journal } from "../events/journal.ts";
import { type GuardData, eventsOfKind } from "../events/store.ts";
import type { Database } from "../store/database.ts";
import { CounterWatch, type CounterWatchParts } from "./counter-watch.ts";
import type { Counted } from "./drop-reports.ts";
import { dropText } from "./drop-text.ts";

/** Packets of one kind that were dropped or refused at a port, since the port was made. */
type CountedDrop = (Drop | Refusal) & Counted;

/** Who sends by a port. */
export interface PortOwner {
  /** The interface's name inside. */
  readonly interface: string;
  /** Which container it is, for people; absent for a pod. */
  readonly container?: string;
  /** Absent for a container. */
  readonly pod?: { readonly id: PodId; readonly name: PodName };
}

export interface DropWatchParts
  extends Pick<CounterWatchParts<CountedDrop>, "clock" | "log" | "everyMs" | "time"> {
  readonly db: Database;
  readonly journal: Journal;
  readonly observe: Pick<HostObservations, "drops" | "refusals">;
  /** The owners of these ports, by link; without those that have none. */
  readonly ownersOf: (links: ReadonlySet<string>) => ReadonlyMap<string, PortOwner>;
}

/**
 * What every Linux sends where it is not answered: routers that it looks for, groups that it
 * reports. It is counted, and not reported.
 */
const ordinary: ReadonlySet<string> = new Set<Drop["kind"]>(["no-ipv6"]);

const keyed = <Each extends Pick<GuardData, "link" | "kind" | "packets">>(
  drop: Each,
): Each & Counted => ({ ...drop, key: `${drop.link} ${drop.kind}`, count: drop.packets });

/**
 * Reports what the guard drops of guests and containers, and what the host refuses of them, by
 * events: each kind once for as long as its port lives.
 */
export function watchDrops(parts: DropWatchParts): CounterWatch<CountedDrop> {
  const { db, observe } = parts;
  let owners: ReadonlyMap<string, PortOwner> = new Map();
  return new CounterWatch<CountedDrop>({
    ...parts,
    stored: eventsOfKind(db, "guard"),
    reportedBy: ({ podId, data }) =>
      (data.guard ?? []).map((drop) => [podId ?? drop.link, keyed(drop)] as const),
    failed: "Failed to count dropped packets",
    count: async (signal) =>
      [...(await observe.drops(signal)), ...(await observe.refusals(signal))]
        .filter(({ kind }) => !ordinary.has(kind))
        .map(keyed),
    ownersOf: (counted) => {
      owners = parts.ownersOf(new Set(counted.map(({ link }) => link)));
      return ({ link }) => {
        const owner = owners.get(link);
        return owner === undefined ? undefined : (owner.pod?.id ?? link);
      };
    },
    report: (drops) => report(parts, drops, owners),
  });
}

function report(
  { journal, log }: DropWatchParts,
  drops: readonly CountedDrop[],
  owners: ReadonlyMap<string, PortOwner>,
): void {
  const texts: string[] = [];
  const guard: GuardData[] = [];
  let about = {};
  for (const [link, some] of Map.groupBy(drops, (drop) => drop.link)) {
    const { interface: name = "", container = name, pod } = owners.get(link) ?? {};
    if (pod !== undefined) about = { podId: pod.id, podName: pod.name };
    texts.push(dropText(container, some));
    for (const { kind, packets, bytes } of some)
      guard.push({ interface: name, link, kind, packets, bytes });
  }
  const text = texts.join(". ");
  log.warn({ ...about, guard }, "Packets were dropped or refused");
  journal.emit({ kind: "guard", ...about, data: { text, guard } });
}
