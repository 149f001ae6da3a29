import path from "node:path";

/** The worker's program: its command line, and the files that it reads. */
export interface ImagesProgram {
  readonly argv: readonly [node: string, ...string[]];
  readonly files: readonly string[];
}

/** V8's memory for names and attributes; what is read passes through in pieces. */
const heapMib = 1024;

/** All memory of a worker: V8's, buffers, and that of `sqfstar`, which gets an amount. */
export const workerMemoryMib = 2048;

/** The program as scripts/build-programs makes it, in a checkout; `node` runs it. */
export function imagesProgram(checkout: string, node: string): ImagesProgram {
  const program = path.join(checkout, "build/programs/podnet-images.mjs");
  return { argv: [node, `--max-old-space-size=${heapMib}`, program], files: [program] };
}
