import { setTimeout as delay } from "node:timers/promises";

/** Milliseconds between the first two looks, and at most: a look may be a process or two. */
const [first, most] = [20, 160];

/**
 * Looks until there is something to see, less often the longer it takes; throws with what was seen
 * last when that takes too long.
 */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
  limitMs = 30_000,
  seen: () => string | Promise<string> = () => "",
): Promise<T> {
  const end = performance.now() + limitMs;
  for (let pause = first; ; pause = Math.min(most, pause * 1.25)) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > end)
      throw new Error(`Waited in vain for ${what}\n${(await seen()).slice(-6000)}`);
    await delay(pause);
  }
}
