import { printable } from "../../core/names.ts";
import { invalid } from "../fields.ts";
import type {
  CaptureRequest,
  LiveTraceBounds,
  StatsRequest,
} from "../gen/podnet/v1/pod_service_pb.ts";
import { validatePodRef } from "./exec.ts";

/** Counters that are asked for, every field checked. */
export interface StatsSpec {
  /** Undefined: every pod. */
  readonly pod: string | undefined;
  /** Undefined: once. */
  readonly everyMs: number | undefined;
}

const every = { least: 100, most: 3_600_000 } as const;

export function validateStats({ idOrName, everyMs }: StatsRequest): StatsSpec {
  if (everyMs !== 0 && (everyMs < every.least || everyMs > every.most)) {
    throw invalid(
      "every_ms",
      `${everyMs} ms between answers is not possible`,
      `Give ${every.least} to ${every.most}, or 0 for one answer`,
    );
  }
  return {
    pod: idOrName === "" ? undefined : validatePodRef(idOrName),
    everyMs: everyMs === 0 ? undefined : everyMs,
  };
}

/** A capture that is asked for, every field checked. */
export interface CaptureSpec {
  readonly pod: string;
  /** Undefined: its first. */
  readonly guestName: string | undefined;
  readonly snapBytes: number;
  /** Undefined: no end. */
  readonly maxPackets: bigint | undefined;
}

const snap = { least: 64, most: 262_144 } as const;

export function validateCapture(request: CaptureRequest): CaptureSpec {
  const { guestName, snapBytes, maxPackets } = request;
  // Of names the kernel takes; which of them the pod has is seen when it is looked for.
  if (guestName !== "" && !/^[^\s/]{1,15}$/.test(guestName)) {
    throw invalid(
      "guest_name",
      `"${printable(guestName)}" is no interface's name`,
      "Give the name of an interface in the guest, as `podnet get` shows it",
    );
  }
  if (snapBytes !== 0 && (snapBytes < snap.least || snapBytes > snap.most)) {
    throw invalid(
      "snap_bytes",
      `${snapBytes} bytes of each packet cannot be kept`,
      `Give ${snap.least} to ${snap.most}, or 0 for ${snap.most}`,
    );
  }
  return {
    pod: validatePodRef(request.idOrName),
    guestName: guestName === "" ? undefined : guestName,
    snapBytes: snapBytes === 0 ? snap.most : snapBytes,
    maxPackets: maxPackets === 0n ? undefined : maxPackets,
  };
}

const packets = { usual: 1, most: 16 } as const;
const traceMs = { usual: 30_000, least: 1000, most: 600_000 } as const;

/** What ends a live trace, every field checked. */
export function validateTraceBounds(
  bounds: Pick<LiveTraceBounds, "packets" | "timeoutMs"> = { packets: 0, timeoutMs: 0 },
): Pick<LiveTraceBounds, "packets" | "timeoutMs"> {
  const count = bounds.packets || packets.usual;
  if (count > packets.most)
    throw invalid(
      "bounds.packets",
      `${count} packets are too many for a trace`,
      `Give 1 to ${packets.most}, or see podnet capture`,
    );
  const timeoutMs = bounds.timeoutMs || traceMs.usual;
  if (timeoutMs < traceMs.least || timeoutMs > traceMs.most)
    throw invalid(
      "bounds.timeout_ms",
      `A trace cannot take ${timeoutMs} ms`,
      `Give ${traceMs.least} to ${traceMs.most}, or 0 for ${traceMs.usual}`,
    );
  return { packets: count, timeoutMs };
}
