import { setTimeout as delay } from "node:timers/promises";

/**
 * Looks until there is something to see; throws with what was seen last when that takes too long.
 */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
  limitMs = 30_000,
  seen: () => string | Promise<string> = () => "",
): Promise<T> {
  for (const end = performance.now() + limitMs; ; await delay(20)) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (performance.now() > end)
      throw new Error(`Waited in vain for ${what}\n${(await seen()).slice(-6000)}`);
  }
}
