import type { Span } from "../../api/gen/podnet/v1/pod_pb.ts";
import type { StepStarted } from "../../api/gen/podnet/v1/pod_service_pb.ts";
import type { Output } from "../io.ts";
import { duration, harmless, styled } from "./text.ts";

/** The progress of a create: a line for each finished step, and below them the ones under way. */
export interface Progress extends Disposable {
  started(step: StepStarted): void;
  finished(span: Span): void;
}

const silent: Progress = { started() {}, finished() {}, [Symbol.dispose]() {} };

/** Shows progress on a terminal; says nothing elsewhere. */
export function showProgress(out: Output): Progress {
  if (out.isTTY !== true) return silent;
  const running = new Map<string, string>();
  const clear = (): void => void out.write("\r\u001b[K");
  const draw = (): void => {
    clear();
    if (running.size === 0) return;
    const text = `  ${[...running.values()].join(", ")} …`;
    // One line alone can be redrawn.
    out.write(styled(out, "dim", text.slice(0, (out.columns ?? 80) - 1)));
  };
  const titles = new Map<string, string>();
  return {
    started({ step, title }) {
      const text = title === "" ? step : harmless(title);
      running.set(step, text);
      titles.set(step, text);
      draw();
    },
    finished({ step, durationMs, detail }) {
      running.delete(step);
      clear();
      const time = duration(durationMs).padStart(8);
      const title = titles.get(step) ?? step;
      const more = detail === "" ? "" : `  ${styled(out, "dim", harmless(detail))}`;
      out.write(`${styled(out, "green", "✓")} ${time}  ${title}${more}\n`);
      draw();
    },
    [Symbol.dispose]: clear,
  };
}
