import type { Io } from "./io.ts";
import { age } from "./text.ts";

/** Says how old what is told of other hosts is, where etcd is away. */
export function tellStale(io: Io, staleMs: bigint | undefined): void {
  if (staleMs !== undefined)
    io.stderr.write(`etcd has not been heard for ${age(Number(staleMs))}: others are as of then\n`);
}
