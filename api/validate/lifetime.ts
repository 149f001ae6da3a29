import { invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { LifetimeSpec } from "../pod-spec.ts";

const limits = {
  /** Traffic is looked at every few seconds. */
  minIdleS: 10,
  /** Ten years. */
  maxS: 315_360_000,
} as const;

/** Checks what ends a pod by itself; undefined when nothing does. */
export function validateLifetime({
  ttlS,
  ttlDelete,
  idleStopS,
}: wire.Lifetime): LifetimeSpec | undefined {
  if (ttlS > limits.maxS) throw tooLong("lifetime.ttl_s", ttlS);
  if (ttlDelete && ttlS === 0)
    throw invalid(
      "lifetime.ttl_delete",
      "Without a time the pod is never deleted",
      "Give lifetime.ttl_s, or leave ttl_delete out",
    );
  if (idleStopS > limits.maxS) throw tooLong("lifetime.idle_stop_s", idleStopS);
  if (idleStopS > 0 && idleStopS < limits.minIdleS)
    throw invalid(
      "lifetime.idle_stop_s",
      `${idleStopS} s without traffic say little`,
      `Use ${limits.minIdleS} or more, or 0 for never`,
    );
  if (ttlS === 0 && idleStopS === 0) return undefined;
  return {
    ...(ttlS === 0 ? {} : { ttlMs: ttlS * 1000 }),
    ttlDelete,
    ...(idleStopS === 0 ? {} : { idleStopMs: idleStopS * 1000 }),
  };
}

const tooLong = (field: string, seconds: number) =>
  invalid(field, `${seconds} s are too long`, `Use at most ${limits.maxS}, or 0 for never`);
