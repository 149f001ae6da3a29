import type { Span } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { StepStarted } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import type { Output } from "../io.ts";
import { duration, harmless, styled } from "./text.ts";
import { sinceText, ticking } from "./ticking.ts";

/** The progress of a create: a line for each finished step, and below them the ones under way. */
export interface Progress extends Disposable {
  started(step: Pick<StepStarted, "step" | "title" | "usualMs">): void;
  finished(span: Pick<Span, "step" | "durationMs" | "detail">): void;
}

const silent: Progress = { started() {}, finished() {}, [Symbol.dispose]() {} };

/** Shows progress on a terminal; says nothing elsewhere. */
export function showProgress(out: Output): Progress {
  if (out.isTTY !== true) return silent;
  const running = new Map<string, () => string>();
  const line = ticking(out, () => {
    const steps = Array.from(running.values(), (text) => text());
    return steps.length === 0 ? "" : `  ${steps.join("; ")} …`;
  });
  const titles = new Map<string, string>();
  return {
    started({ step, title, usualMs }) {
      const text = title === "" ? step : harmless(title);
      const began = performance.now();
      running.set(step, () => `${text}${sinceText(performance.now() - began, usualMs)}`);
      titles.set(step, text);
      line.draw();
    },
    finished({ step, durationMs, detail }) {
      running.delete(step);
      line.clear();
      const time = duration(durationMs).padStart(8);
      const title = titles.get(step) ?? step;
      const more = detail === "" ? "" : `  ${styled(out, "dim", harmless(detail))}`;
      out.write(`${styled(out, "green", "✓")} ${time}  ${title}${more}\n`);
      line.draw();
    },
    [Symbol.dispose]: () => line[Symbol.dispose](),
  };
}
