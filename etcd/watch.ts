import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { performAsync } from "../core/effect.ts";
import type { PodnetError } from "../core/errors.ts";
import type { Endpoint, Sent } from "./endpoint.ts";
import { callError, etcdError, saidError } from "./errors.ts";
import type { Watched, Where } from "./etcd.ts";
import type { WatchRequestSchema, WatchResponse } from "./gen/etcdserverpb/rpc_pb.ts";
import { answerOf, eventsOf, rangeOf } from "./messages.ts";

/** How a silent etcd is noticed. */
export interface WatchTiming {
  /** How often it is asked to say something. */
  readonly askMs: number;
  /** After this long without a word it is taken for gone. */
  readonly silenceMs: number;
}

type Request = MessageInitShape<typeof WatchRequestSchema>;

/**
 * The watch, and then a question now and then. (HTTP/2's pings would do, but etcd allows one in
 * five seconds.)
 */
async function* requests(
  create: Request,
  askMs: number,
  ended: AbortSignal,
): AsyncGenerator<Request> {
  yield create;
  for (;;) {
    try {
      await delay(askMs, undefined, { signal: ended, ref: false });
    } catch {
      return;
    }
    yield { requestUnion: { case: "progressRequest", value: {} } };
  }
}

/**
 * The next item, or `ETCD_UNREACHABLE` when none comes in time. The time of a slow reader does not
 * count.
 */
async function nextWithin<T>(
  answers: AsyncIterator<T>,
  silenceMs: number,
  silent: () => PodnetError,
): Promise<IteratorResult<T>> {
  const over = new AbortController();
  const late = async (): Promise<never> => {
    await delay(silenceMs, undefined, { signal: over.signal });
    // A process that was held up itself finds its timers before what has come meanwhile: that comes
    // first.
    await delay(100, undefined, { signal: over.signal });
    throw silent();
  };
  const waited = late();
  waited.catch(() => {});
  try {
    return await Promise.race([answers.next(), waited]);
  } finally {
    over.abort();
  }
}

/** Converts one answer; throws the error that ended the watch. */
function watchedOf(answer: WatchResponse): Watched {
  const { compactRevision, cancelReason } = answer;
  if (compactRevision !== 0n)
    throw etcdError(
      "ETCD_COMPACTED",
      `etcd has nothing left of before revision ${compactRevision}`,
      {
        revision: String(compactRevision),
      },
    );
  if (answer.canceled) throw saidError(cancelReason || "the watch was cancelled");
  if (answer.events.length > 0) {
    const revision = answer.events.at(-1)?.kv?.modRevision ?? 0n;
    return { kind: "events", revision, events: eventsOf(answer.events) };
  }
  // A requested progress notification may overtake events (etcd before 3.4.25 and 3.5.8); one that
  // etcd sends by itself does not.
  if (answer.created || answer.watchId < 0n) return { kind: "alive", ...answerOf(answer.header) };
  return { kind: "reached", revision: answer.header?.revision ?? 0n };
}

/** A watch on one endpoint, which is ready. The first that comes is `alive`, or an error. */
export async function* watchOn(
  endpoint: Endpoint,
  where: Where,
  from: bigint,
  { headers, signal }: Sent,
  { askMs, silenceMs }: WatchTiming,
): AsyncGenerator<Watched, never> {
  const ended = new AbortController();
  const either = signal === undefined ? ended.signal : AbortSignal.any([ended.signal, signal]);
  const silent = (): PodnetError =>
    etcdError("ETCD_UNREACHABLE", `etcd at ${endpoint.url}: no word for ${silenceMs} ms`, {
      endpoint: endpoint.url,
    });
  const create: Request = {
    requestUnion: {
      case: "createRequest",
      value: { ...rangeOf(where), startRevision: from, progressNotify: true },
    },
  };
  const open = (): AsyncIterator<WatchResponse> => {
    const asked = requests(create, askMs, either);
    const stream = endpoint.services.watch.watch(asked, { headers, signal: either });
    return stream[Symbol.asyncIterator]();
  };
  let answers: AsyncIterator<WatchResponse> | undefined;
  const next = (): Promise<IteratorResult<WatchResponse>> =>
    nextWithin((answers ??= open()), silenceMs, silent);
  try {
    for (let first = true; ; first = false) {
      const { done, value } = await (first ? performAsync("etcd", "watch", next) : next());
      if (done === true) throw saidError("server stopped");
      yield watchedOf(value);
    }
  } catch (thrown) {
    throw callError(thrown, endpoint.url, false);
  } finally {
    ended.abort();
  }
}
