import { hostname } from "node:os";
import type { Clock } from "../../../core/clock.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { NetworkName } from "../../../core/names.ts";
import type { Etcd } from "../../../etcd/etcd.ts";
import type { Log } from "../../../linux/log.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import { hostIdOf, recordsPrefix } from "../../../overlay/pods/keys.ts";
import type { PodRecord } from "../../../overlay/pods/record.ts";
import type { Config } from "../../config/config.ts";
import type { Journal } from "../../events/journal.ts";
import type { Database } from "../../store/database.ts";
import { getUsablePod, listPods } from "../../pods/store/pods.ts";
import type { PodRow } from "../../pods/store/pod-row.ts";
import { HostRecords } from "./host-records.ts";
import { ownerId } from "./owner-id.ts";
import { podRecordOf } from "./pod-record.ts";
import { SharedHosts } from "./shared-hosts.ts";
import type { Services } from "../../services/services.ts";
import type { OverlayView } from "../view.ts";

export interface HostRecordsSources {
  readonly config: Pick<Config, "stateDir">;
  /** The overlays' prefix: their keys in etcd are at or below it. */
  readonly prefix: NonNullable<Config["overlay"]>["prefix"];
  readonly etcd: Etcd;
  readonly overlays: {
    list(): readonly OverlayView[];
    reaches(name: string, leaseKey: string): boolean | undefined;
    onChange: () => void;
    recordTroubles: () => readonly string[];
    present(owners: ReadonlySet<OwnerId> | undefined): void;
  };
  readonly db: Database;
  readonly services: Services;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Starts publishing this host's pods to other hosts, from the database and after each change, and
 * sharing services with them.
 */
export function openHostRecords(sources: HostRecordsSources): HostRecords {
  const { config, etcd, overlays, db, services, journal, clock, log } = sources;
  const prefix = recordsPrefix(sources.prefix);
  const recordOf = (row: PodRow): PodRecord => {
    const all = overlays.list();
    return podRecordOf(
      row,
      (network) => all.find((each) => each.network === network)?.name as NetworkName | undefined,
    );
  };
  const records = new HostRecords({
    etcd,
    prefix,
    host: hostIdOf(ownerId(config.stateDir), hostname()),
    clock,
    random: Math.random,
    log,
    onPresent: (owners) => overlays.present(owners),
    onOthers: (change) => services.othersChanged(change),
    self: () => ({
      name: hostname(),
      leases: overlays.list().flatMap(({ leaseKey }) => leaseKey ?? []),
    }),
    pods: () => listPods(db).map(recordOf),
    pod(id) {
      const row = getUsablePod(db, id);
      return row && recordOf(row);
    },
  });
  overlays.onChange = () => {
    records.hostChanged();
    services.othersChanged();
  };
  overlays.recordTroubles = () => [...records.troubles, ...services.troubles];
  services.share(new SharedHosts({ etcd, prefix, overlays, records }));
  records.start((ended) => followJournal(records, { journal, log, ended }));
  return records;
}

/** Reports each changed pod to the records. */
async function followJournal(
  records: HostRecords,
  { journal, log, ended }: Pick<HostRecordsSources, "journal" | "log"> & { ended: AbortSignal },
): Promise<void> {
  while (!ended.aborted) {
    try {
      const after = journal.newest;
      records.podsChanged();
      for await (const { podId, kind } of journal.watch(after, ended))
        if (podId !== undefined && kind !== "step") records.podChanged(podId);
    } catch (err) {
      // Too much at once: all of it is looked at again.
      if (isPodnetError(err, "EVENTS_LOST")) continue;
      log.error({ err }, "Changes of pods are no longer published to other hosts");
      return;
    }
  }
}
