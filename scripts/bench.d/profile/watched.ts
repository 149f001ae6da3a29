import { openSync, readSync } from "node:fs";
import path from "node:path";
import { type Mark, monotonicMs, parseTimes } from "./timeline.ts";

/** A podnetd that writes down when it does what: its environment, and what it has written. */
export interface Watched {
  readonly env: Readonly<Record<string, string>>;
  /** Does something; answers when it began and ended, and podnetd's marks meanwhile. */
  around<T>(work: () => Promise<T>): Promise<Call<T>>;
  /** What has been written since the last look. */
  marks(): readonly Mark[];
}

interface Call<T> {
  readonly result: T;
  readonly window: readonly [begin: number, end: number];
  readonly marks: readonly Mark[];
}

/** The marks of a podnetd that is started with `env` go to a file in the directory. */
export function watched(directory: string): Watched {
  const file = path.join(directory, "times");
  const fd = openSync(file, "a+");
  let seen = 0;
  const marks = (): readonly Mark[] => {
    const chunk = Buffer.alloc(1 << 22);
    const length = readSync(fd, chunk, 0, chunk.length, seen);
    const whole = chunk.subarray(0, length).lastIndexOf("\n") + 1;
    seen += whole;
    return parseTimes(chunk.toString("utf8", 0, whole));
  };
  return {
    env: { PODNET_FAILPOINTS: `times:${file}` },
    marks,
    async around(work) {
      marks();
      const begin = monotonicMs();
      const result = await work();
      const end = monotonicMs();
      return { result, window: [begin, end], marks: marks() };
    },
  };
}
