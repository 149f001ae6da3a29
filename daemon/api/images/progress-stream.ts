import { create } from "@bufbuild/protobuf";
import * as wire from "../../../api/gen/podnet/v1/image_service_pb.ts";
import type { StageProgress } from "../../../images/worker/messages.ts";
import type { StoredImageRow } from "../../images/images.ts";
import { imageView } from "./image-view.ts";

/** A stage has to go on so long before its end is guessed. */
const guessMs = 500;

/**
 * The progress of work on an image, then the image. A caller that reads slowly gets the latest
 * progress and not all. The work is given up when the caller goes.
 */
export async function* progressStream(
  work: (report: (progress: StageProgress) => void, signal: AbortSignal) => Promise<StoredImageRow>,
  signal: AbortSignal,
): AsyncGenerator<wire.ImageProgress> {
  const gone = new AbortController();
  const beganMs = performance.now();
  let stage = { name: "", sinceMs: beganMs, from: 0 };
  let latest: StageProgress | undefined;
  let wake = Promise.withResolvers<void>();
  const report = (progress: StageProgress): void => {
    latest = progress;
    if (progress.stage !== stage.name)
      stage = { name: progress.stage, sinceMs: performance.now(), from: progress.done };
    wake.resolve();
  };
  const outcome = work(report, AbortSignal.any([signal, gone.signal])).then(
    (image) => ({ image }),
    (error: unknown) => ({ error }),
  );
  try {
    for (;;) {
      const next = await Promise.race([outcome, wake.promise]);
      if (latest !== undefined) {
        const { done, all } = latest;
        const nowMs = performance.now();
        const spentMs = nowMs - stage.sinceMs;
        const gained = done - stage.from;
        const isKnown = all > 0 && gained > 0 && spentMs >= guessMs;
        yield create(wire.ImageProgressSchema, {
          stage: latest.stage,
          bytes: BigInt(done),
          totalBytes: BigInt(all),
          elapsedMs: BigInt(Math.round(nowMs - beganMs)),
          ...(isKnown
            ? { leftMs: BigInt(Math.max(0, Math.round((spentMs * (all - done)) / gained))) }
            : {}),
        });
        latest = undefined;
      }
      wake = Promise.withResolvers<void>();
      if (next === undefined) continue;
      if ("error" in next) throw next.error;
      yield create(wire.ImageProgressSchema, {
        stage: "done",
        elapsedMs: BigInt(Math.round(performance.now() - beganMs)),
        image: imageView(next.image),
      });
      return;
    }
  } finally {
    gone.abort();
  }
}
