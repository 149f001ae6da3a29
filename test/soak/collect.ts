import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/**
 * Bytes that are referenced in this process after all garbage is collected: objects, and buffers
 * outside of the heap.
 */
export function heldBytes(): number {
  // What finalizers let go of at the first collection is free after the second.
  collect();
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
