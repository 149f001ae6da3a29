import { toPodnetError } from "../../core/errors.ts";
import type { VmEvent } from "../driver.ts";
import { eventData, type QmpEvent } from "../qmp/commands.ts";
import { channelPorts } from "../argv/argv.ts";
import type { Log } from "../process/log.ts";

type Listener = (event: VmEvent) => void;

/**
 * Notifies listeners of a VM's events. The last event is its end, which late listeners receive too.
 */
export class VmEvents {
  readonly #listeners = new Set<Listener>();
  readonly #log: Log;
  #exit: VmEvent | undefined;

  constructor(log: Log) {
    this.#log = log;
  }

  /** Subscribes; the function returned unsubscribes. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    const exit = this.#exit;
    if (exit !== undefined) queueMicrotask(() => this.#notify(listener, exit));
    return () => this.#listeners.delete(listener);
  }

  emit(event: VmEvent): void {
    if (event.kind === "exited") this.#exit = event;
    for (const listener of this.#listeners) this.#notify(listener, event);
  }

  /** Removes all current listeners. */
  clear(): void {
    this.#listeners.clear();
  }

  #notify(listener: Listener, event: VmEvent): void {
    try {
      listener(event);
    } catch (error) {
      const { message } = toPodnetError(error);
      this.#log("error", "A listener to the VM's events failed", { reason: message });
    }
  }
}

/** Translates QEMU's events, except those of NICs that leave. Pure. */
export function vmEventOf(event: QmpEvent): VmEvent {
  const port = eventData(event, "VSERPORT_CHANGE");
  for (const number of [0, 1] as const)
    if (port?.id === channelPorts[number])
      return { kind: "channel", port: number, open: port.open };
  if (eventData(event, "STOP")) return { kind: "run-state", runs: false };
  if (eventData(event, "RESUME")) return { kind: "run-state", runs: true };
  if (eventData(event, "RESET")?.guest === true) return { kind: "guest-reset" };
  if (eventData(event, "SHUTDOWN")?.guest === true) return { kind: "guest-shutdown" };
  return { kind: "unheeded" };
}
