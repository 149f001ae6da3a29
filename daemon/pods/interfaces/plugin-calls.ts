import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { perform } from "../../../core/effect.ts";
import { signalGroup } from "../../../linux/processes/command-end.ts";
import { bootId, isSameProcess, processStartTime } from "../../../linux/processes/proc.ts";
import { readRegular } from "../../../linux/files/regular-file.ts";
import { KeyedLock } from "../../reconcile/keyed-lock.ts";

/**
 * Longest wait for a plugin of an earlier podnetd, and then again once it was signalled to end,
 * milliseconds.
 */
const graceMs = { unasked: 5000, signalled: 500 } as const;
const lookMs = 20;

/**
 * Running CNI plugins, by sandbox: one call at a time. A podnetd that is killed leaves its plugin
 * running, and the next podnetd must not call plugins for that sandbox alongside it; a file
 * therefore names the process.
 */
export class PluginCalls {
  readonly #directory: string;
  readonly #locks = new KeyedLock<string>();

  /** `directory` is made when it is needed. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /**
   * Runs `body`, which calls plugins for a sandbox, once no other call runs for it and a plugin of
   * an earlier podnetd has ended. `body` has to report each plugin as it starts.
   */
  run<T>(containerId: string, body: (started: (pid: number) => void) => Promise<T>): Promise<T> {
    const file = join(this.#directory, containerId);
    return this.#locks.run(containerId, async () => {
      await outlive(file);
      try {
        return await body((pid) => this.#write(file, pid));
      } finally {
        perform("file", "forget a plugin", () => rmSync(file, { force: true }));
      }
    });
  }

  #write(file: string, pid: number): void {
    try {
      perform("file", "note a plugin", () => {
        mkdirSync(this.#directory, { recursive: true, mode: 0o700 });
        writeFileSync(file, `${pid} ${processStartTime(pid) ?? ""} ${bootId()}`, { mode: 0o600 });
      });
    } catch {
      // The plugin runs already, and this podnetd waits for its end without the file.
    }
  }
}

/**
 * Waits for the plugin that a file reports, and ends it, with what it has started, when it takes
 * too long.
 */
async function outlive(file: string): Promise<void> {
  const pid = pidIn(file);
  if (pid === undefined) return;
  const gone = async (ms: number): Promise<boolean> => {
    for (const end = performance.now() + ms; pidIn(file) !== undefined; await delay(lookMs))
      if (performance.now() >= end) return false;
    return true;
  };
  if (await gone(graceMs.unasked)) return;
  signalGroup(pid, "SIGTERM");
  if (await gone(graceMs.signalled)) return;
  signalGroup(pid, "SIGKILL");
  await gone(graceMs.signalled);
}

/** The process that a file reports; undefined when there is no such file, or it has ended. */
function pidIn(file: string): number | undefined {
  let text: string;
  try {
    text = readRegular(file, 4096).toString("latin1");
  } catch {
    return undefined;
  }
  const [pid = "", startTime = "", boot] = text.split(" ");
  // (A file whose write was cut short has little in it.)
  if (!/^[1-9]\d*$/.test(pid) || boot !== bootId()) return undefined;
  return isSameProcess(Number(pid), startTime) ? Number(pid) : undefined;
}
