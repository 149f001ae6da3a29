import { create } from "@bufbuild/protobuf";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { type PodStats, StatsRequestSchema } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { ServiceParts } from "../api/context.ts";
import { streamStats } from "../api/stats-stream.ts";
import { json } from "./answers.ts";
import type { PodRow } from "../pods/store/pod-row.ts";
import { type KnownPods } from "./known-pods.ts";
import { idOf } from "./pod-ids.ts";
import { parameter, type Route } from "./routes.ts";

/** What pods use; hyperd with QEMU had no such answer. */
export const statsCalls = (parts: ServiceParts, known: KnownPods): readonly Route[] => [
  {
    method: "GET",
    path: "/pod/stats",
    parameters: ["podId"],
    role: "viewer",
    answer: async (call) =>
      json(await statsOf(known.find(parameter(call, "podId")), parts, call.context.signal)),
  },
];

/** What a pod uses now. Throws `WRONG_STATE` with hyperd's sentence when it does not run. */
export async function statsOf(row: PodRow, parts: ServiceParts, signal: AbortSignal) {
  const request = create(StatsRequestSchema, { idOrName: row.id });
  for await (const { pods, time } of streamStats(request, parts, signal)) {
    const [pod] = pods;
    if (pod?.machine === undefined) break;
    return statsView(pod, time === undefined ? 0 : timestampMs(time));
  }
  throw new PodnetError(
    "WRONG_STATE",
    `Can not get pod stats for non-running pod (${printable(idOf(row))})`,
    { hint: "Start it" },
  );
}

/** Times are nanoseconds. What podnet does not count is left out. */
const statsView = ({ machine, interfaces }: PodStats, atMs: number) => ({
  cpu: { usage: { total: Math.round((machine?.cpuS ?? 0) * 1e9) } },
  memory: {
    usage: Number(machine?.memoryBytes ?? 0n),
    workingSet: Number(machine?.memoryBytes ?? 0n),
  },
  network: {
    interfaces: interfaces.map((each) => ({
      name: each.guestName,
      rxBytes: Number(each.rxBytes),
      rxPackets: Number(each.rxPackets),
      rxErrors: Number(each.rxErrors),
      rxDropped: Number(each.rxDropped),
      txBytes: Number(each.txBytes),
      txPackets: Number(each.txPackets),
      txErrors: Number(each.txErrors),
      txDropped: Number(each.txDropped),
    })),
  },
  timestamp: atMs * 1e6,
});
