import { createHash } from "node:crypto";
import type { PodSpec } from "../../../api/pod-spec.ts";
import type { Clock } from "../../../core/clock.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { PodId } from "../../../core/names.ts";
import type { Database } from "../../store/database.ts";
import { getRequest } from "./request-rows.ts";
import { errorFromRecord, parseErrorRecord } from "../../events/error-record.ts";
import type { RequestKey } from "./records.ts";

interface Running {
  readonly digest: string;
  readonly outcome: Promise<PodId>;
}

/** Creates that may be asked for again: the same id with the same spec is the same create. */
export class Requests {
  readonly #db: Database;
  readonly #clock: Clock;
  readonly #running = new Map<string, Running>();

  constructor(db: Database, clock: Clock) {
    this.#db = db;
    this.#clock = clock;
  }

  key(id: string, spec: PodSpec): RequestKey {
    return { id, digest: digestOf(spec) };
  }

  /**
   * The outcome of an earlier create with this id, running or done; undefined when there was none.
   * Throws `REQUEST_CONFLICT` when it was about another pod. Rejects with `CANCELLED` when an
   * earlier podnetd was cut short in it, and what is left of it is not undone yet.
   */
  join(id: string, spec: PodSpec, signal: AbortSignal): Promise<PodId> | undefined {
    const digest = digestOf(spec);
    const running = this.#running.get(id);
    const known = running ?? getRequest(this.#db, id, this.#clock.now());
    if (known === undefined) return undefined;
    if (known.digest !== digest) {
      throw new PodnetError("REQUEST_CONFLICT", `Request id "${id}" was used for another pod`, {
        field: "request_id",
        hint: "Use a new id for a new pod, and the same spec for a retry",
      });
    }
    if ("outcome" in known) return waitFor(known.outcome, signal);
    if (!known.done) return Promise.reject(unfinished(id));
    if (known.error === undefined) return Promise.resolve(known.podId);
    return Promise.reject(errorFromRecord(parseErrorRecord(known.error)));
  }

  /** Follows a create; the caller may stop waiting for it, which does not end it. */
  track(request: RequestKey, outcome: Promise<PodId>, signal: AbortSignal): Promise<PodId> {
    const { id, digest } = request;
    this.#running.set(id, { digest, outcome });
    // The callers handle a failure; this only notices the end.
    void Promise.allSettled([outcome]).then(() => this.#running.delete(id));
    return waitFor(outcome, signal);
  }
}

const unfinished = (id: string): PodnetError =>
  new PodnetError("CANCELLED", `Create "${id}" was cut short, and what is left is being undone`, {
    hint: "Ask again with the same request id: once nothing is left the pod is created anew",
  });

/** The outcome, or the abort of the caller's signal. */
async function waitFor<T>(outcome: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => {
    reject(
      new PodnetError("CANCELLED", "The caller went away; the create goes on", {
        hint: "Ask again with the same request id",
      }),
    );
  };
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([outcome, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** A digest of a spec's content that does not depend on the order of keys. */
function digestOf(spec: PodSpec): string {
  const ordered = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(ordered);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value)
        .toSorted(([a], [b]) => (a < b ? -1 : 1))
        .map(([key, each]) => [key, ordered(each)]),
    );
  };
  return createHash("sha256")
    .update(JSON.stringify(ordered(spec)))
    .digest("hex");
}
