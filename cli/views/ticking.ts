import type { Output } from "../io.ts";
import { duration, harmless, styled } from "./text.ts";

/** Between two drawings of a line, milliseconds. */
const tickMs = 500;
/** Work that is shorter needs no time. */
const shortMs = 1000;

/** A line at the end of a terminal, drawn again while time passes, and removed at the end. */
export interface Ticking extends Disposable {
  /** Draws the line; an empty one is removed. */
  draw(): void;
  /** Removes the line, so that something else can be written. */
  clear(): void;
}

/** Draws what `lineOf` says on a terminal, now and while time passes; nothing elsewhere. */
export function ticking(out: Output, lineOf: () => string): Ticking {
  if (out.isTTY !== true) return { draw() {}, clear() {}, [Symbol.dispose]() {} };
  const clear = (): void => void out.write("\r\u001b[K");
  const draw = (): void => {
    clear();
    const line = lineOf();
    // One line alone can be redrawn.
    if (line !== "") out.write(styled(out, "dim", line.slice(0, (out.columns ?? 80) - 1)));
  };
  const timer = setInterval(draw, tickMs);
  return {
    draw,
    clear,
    [Symbol.dispose]() {
      clearInterval(timer);
      clear();
    },
  };
}

/** `, 12 s of about 20 s`, `, 12 s`, or nothing in the first second. */
export function sinceText(elapsedMs: number, usualMs?: number): string {
  if (elapsedMs < shortMs) return "";
  // What takes longer than usual has no end that is known.
  const of = usualMs !== undefined && usualMs > elapsedMs ? ` of about ${whole(usualMs)}` : "";
  return `, ${whole(elapsedMs)}${of}`;
}

/** A time in whole seconds, which does not flicker. */
export const whole = (ms: number): string =>
  ms < 120_000 ? `${Math.round(ms / 1000)} s` : duration(ms);

/** Does work that is shown on a terminal once it takes long: `Starting web, 3 s …`. */
export async function whileShown<T>(out: Output, what: string, work: () => Promise<T>): Promise<T> {
  const began = performance.now();
  using _line = ticking(out, () => {
    const since = sinceText(performance.now() - began);
    return since === "" ? "" : `${harmless(what)}${since} …`;
  });
  return await work();
}
