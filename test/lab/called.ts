import { type Effect, watchEffects } from "../../core/effect.ts";

/** What is called of the kernel and of other programs while something is done, in order. */
export async function called(
  work: () => Promise<unknown>,
  isWanted: (effect: Effect) => boolean,
): Promise<string[]> {
  const calls: string[] = [];
  const at = (effect: Effect, side: string): void => {
    if (side === "before" && isWanted(effect)) calls.push(effect.what);
  };
  watchEffects({ at, atAsync: (effect, side) => Promise.resolve(at(effect, side)) });
  try {
    await work();
  } finally {
    watchEffects(undefined);
  }
  return calls;
}
