/**
 * A request's body that must come in time: all of it when it is one message, its beginning when it
 * is a stream of them. Reading it throws what `late` makes once `ms` have passed.
 */
export function arriving(
  body: AsyncIterable<Uint8Array>,
  {
    ms,
    whole,
    late,
    over: exchangeOver,
  }: {
    readonly ms: number;
    readonly whole: boolean;
    late(): Error;
    /**
     * Resolves when the answer is ready, or its caller has gone; the body of a refused request is
     * not read.
     */
    readonly over: Promise<void>;
  },
): AsyncIterable<Uint8Array> {
  const chunks = body[Symbol.asyncIterator]();
  const over = Promise.withResolvers<never>();
  // There may be no reader at the timeout.
  over.promise.catch(() => {});
  const timer = setTimeout(() => over.reject(late()), ms).unref();
  void exchangeOver.then(() => clearTimeout(timer));
  let begun = false;
  return {
    [Symbol.asyncIterator]: () => ({
      async next() {
        // Raced only while the timer runs: each race leaves a reaction on a promise that stays
        // pending.
        if (begun && !whole) return chunks.next();
        const result = await Promise.race([chunks.next(), over.promise]);
        begun = true;
        if (result.done === true || !whole) clearTimeout(timer);
        return result;
      },
      return() {
        clearTimeout(timer);
        // Not awaited: a reader that waits for a chunk is closed only when it comes.
        void chunks.return?.();
        return Promise.resolve({ done: true, value: undefined });
      },
    }),
  };
}
