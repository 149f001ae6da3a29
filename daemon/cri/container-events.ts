import type { Clock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { Queue } from "../../core/queue.ts";

/** What happened to a container, or to a sandbox by the id of a container's. */
export interface ContainerEvent {
  readonly kind: "created" | "started" | "stopped" | "deleted";
  readonly id: string;
  readonly podId: string;
  readonly atMs: number;
}

/** Events that wait for a reader; who is later has to list again. */
const mostWaiting = 4096;

/** Reports what happens to sandboxes and their containers. */
export class ContainerEvents {
  readonly #readers = new Map<Queue<ContainerEvent>, (reason: PodnetError) => void>();
  readonly #clock: Pick<Clock, "now">;

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
  }

  publish(kind: ContainerEvent["kind"], id: string, podId: string): void {
    const event = { kind, id, podId, atMs: this.#clock.now() };
    for (const [queue, cutOff] of this.#readers)
      if (queue.length < mostWaiting) queue.push(event);
      else cutOff(tooLate());
  }

  /** What happens from now on. Throws `EVENTS_LOST` when it is read too slowly. */
  follow(signal: AbortSignal): AsyncGenerator<ContainerEvent> {
    const queue = new Queue<ContainerEvent>();
    let lost: PodnetError | undefined;
    this.#readers.set(queue, (reason) => {
      lost = reason;
      this.#readers.delete(queue);
      queue.end();
    });
    const stop = (): void => queue.end();
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    const events = async function* (this: ContainerEvents): AsyncGenerator<ContainerEvent> {
      try {
        yield* queue;
        if (lost !== undefined) throw lost;
      } finally {
        signal.removeEventListener("abort", stop);
        this.#readers.delete(queue);
      }
    };
    return events.call(this);
  }
}

const tooLate = (): PodnetError =>
  new PodnetError("EVENTS_LOST", `More than ${mostWaiting} events were not read in time`, {
    hint: "List the containers, and follow the events again",
    details: { limit: mostWaiting },
  });
