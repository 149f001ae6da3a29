import { setTimeout as delay } from "node:timers/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  type InterfaceStatsSchema,
  type PodStatsSchema,
  type StatsRequest,
  type StatsResponse,
  StatsResponseSchema,
} from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { validateStats } from "../../api/validate/traffic.ts";
import { PodnetError } from "../../core/errors.ts";
import type { PodId } from "../../core/names.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { placedCounters, tapsOf } from "../traffic/counters.ts";
import type { MachineSample } from "../traffic/machine-rates.ts";
import { type Rates, ratesBetween, type Sample } from "../traffic/rates.ts";
import type { ServiceParts } from "./context.ts";
import { machineStats, sampleMachines } from "./machine-stats.ts";
import { time } from "./views.ts";

/** Counters once, or again and again with the rates since the answer before. */
export async function* streamStats(
  request: StatsRequest,
  parts: ServiceParts,
  signal: AbortSignal,
): AsyncGenerator<StatsResponse> {
  const { pod, everyMs } = validateStats(request);
  const only = pod === undefined ? undefined : parts.pods.find(pod).id;
  const { clock } = parts.host;
  let before: ReadonlyMap<string, Sample> = new Map();
  let machinesBefore: ReadonlyMap<PodId, MachineSample> = new Map();
  for (let due = clock.monotonic(); ; ) {
    const pods = podsOf(parts, only);
    const taps = pods.flatMap(({ nics }) => tapsOf(nics));
    const links = await placedCounters(parts.netlink, taps);
    const atMs = clock.monotonic();
    const machines = await sampleMachines(
      pods.flatMap(({ row }) => parts.pods.live(row.id) ?? []),
      clock,
    );
    const samples = new Map([...links].map(([tap, link]) => [tap, { atMs, link }] as const));
    yield create(StatsResponseSchema, {
      time: time(clock.now()),
      pods: pods.map(({ row, nics }): MessageInitShape<typeof PodStatsSchema> => {
        const counted = nics.flatMap(({ guestName, nic: { tap } }) => {
          const sample = samples.get(tap);
          if (sample === undefined) return [];
          return [statsOf(guestName, tap, sample, ratesBetween(before.get(tap), sample))];
        });
        const machine = machines.get(row.id);
        return {
          podId: row.id,
          name: row.name,
          interfaces: counted,
          ...(machine === undefined
            ? {}
            : { machine: machineStats(machine, machinesBefore.get(row.id)) }),
        };
      }),
    });
    if (everyMs === undefined) return;
    before = samples;
    machinesBefore = machines;
    // Keeps the pace, however long an answer took to be read; missed samples are not made up for.
    due = Math.max(due + everyMs, clock.monotonic());
    await delay(Math.max(0, due - clock.monotonic()), undefined, { signal }).catch(() => {});
    // The daemon's own end is reported to the caller; a caller that went away receives nothing.
    signal.throwIfAborted();
  }
}

/**
 * The pods that have machines, with their NICs; or the one that was asked for. Throws
 * `POD_NOT_FOUND`.
 */
function podsOf({ pods, records }: ServiceParts, only: PodId | undefined) {
  const withNics = (row: PodRow) => {
    const live = pods.live(row.id);
    const nics = live === undefined ? [] : withNic(staying(live.plan.interfaces));
    return { row, nics };
  };
  if (only === undefined)
    return pods
      .list()
      .filter(({ id }) => pods.live(id) !== undefined)
      .map(withNics);
  const row = records.get(only);
  if (row !== undefined) return [withNics(row)];
  throw new PodnetError("POD_NOT_FOUND", "The pod has been deleted", {
    field: "id_or_name",
    hint: "See podnet list",
  });
}

/** Packets that the host sends into a tap are packets that the pod receives. */
function statsOf(
  guestName: string,
  tap: string,
  { link: { counters } }: Sample,
  rates: Rates | undefined,
): MessageInitShape<typeof InterfaceStatsSchema> {
  return {
    guestName,
    tap,
    rxBytes: counters.txBytes,
    rxPackets: counters.txPackets,
    rxErrors: counters.txErrors,
    rxDropped: counters.txDropped,
    txBytes: counters.rxBytes,
    txPackets: counters.rxPackets,
    txErrors: counters.rxErrors,
    txDropped: counters.rxDropped,
    ...(rates === undefined
      ? {}
      : {
          rates: {
            rxBytesPerS: rates.txBytes,
            rxPacketsPerS: rates.txPackets,
            txBytesPerS: rates.rxBytes,
            txPacketsPerS: rates.rxPackets,
          },
        }),
  };
}
