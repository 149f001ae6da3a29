import { setTimeout as delay } from "node:timers/promises";
import { PodnetError } from "../../core/errors.ts";
import type { ProcessRecord, VmRecord } from "../driver.ts";
import { isRunning, signalProcess } from "./process.ts";

/**
 * Milliseconds to end after `quit`, after SIGTERM, after SIGKILL. A killed QEMU still has its
 * memory to return.
 */
const graceMs = { quit: 1000, term: 1000, kill: 10_000 } as const;

/**
 * Ends a QEMU: first waits if `asked` says that it was asked to quit; then SIGTERM, then SIGKILL.
 * The pid is signalled only while it still belongs to the process of the record; a process that has
 * ended is success. Throws `INTERNAL` when even SIGKILL does not end it (it hangs in the kernel).
 */
export async function endProcess(
  record: VmRecord,
  { asked }: { readonly asked: boolean },
): Promise<void> {
  if (asked && (await endsWithin(record, graceMs.quit))) return;
  signalProcess(record, "SIGTERM");
  if (await endsWithin(record, graceMs.term)) return;
  await killProcess(record, "QEMU", "its pod's resources");
}

/**
 * Kills the process of a record and waits for its end. Throws `INTERNAL` when it does not end:
 * `what` it is, and what stays `taken` until then.
 */
export async function killProcess(
  record: ProcessRecord,
  what: string,
  taken: string,
): Promise<void> {
  signalProcess(record, "SIGKILL");
  if (await endsWithin(record, graceMs.kill)) return;
  throw new PodnetError("INTERNAL", `${what} with pid ${record.pid} does not end`, {
    hint: `Look for a hung device below it; ${taken} stay taken until it is gone`,
    details: { pid: record.pid },
  });
}

/** The kernel notifies only the parent; other processes have to poll. A poll costs 20 µs. */
async function endsWithin(record: ProcessRecord, ms: number): Promise<boolean> {
  const end = performance.now() + ms;
  for (let waitMs = 1; isRunning(record); waitMs = Math.min(waitMs * 2, 20)) {
    if (performance.now() > end) return false;
    await delay(waitMs);
  }
  return true;
}
