import { PodnetError } from "../../../core/errors.ts";
import type {
  MainProcessAccess,
  MainProcessListener,
} from "../../../guest-init/channel/main-process.ts";
import type { Guest } from "../../../guest-init/channel/guest.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";
import { OutputReaders, type ProcessEvent } from "./output-readers.ts";
import type { ProcessLog } from "./process-log.ts";

export interface FollowedOptions {
  /** By which the guest knows this start of the process. */
  readonly id: string;
  readonly log: ProcessLog;
  readonly terminal: boolean;
  readonly now: () => number;
  /** Called once, when the guest reports the end. */
  readonly onEnd: (end: ProcessEnd) => void;
}

/**
 * The main process of a running pod: its output goes to the log and to those who are attached. The
 * channel to the guest may be lost and reached again meanwhile.
 */
export class FollowedProcess implements MainProcessListener, Disposable {
  readonly #options: FollowedOptions;
  readonly #readers = new OutputReaders();
  readonly #over = Promise.withResolvers<ProcessEnd | undefined>();
  #access: MainProcessAccess | undefined;
  #end: ProcessEnd | undefined;
  #isOver = false;

  constructor(options: FollowedOptions) {
    this.#options = options;
  }

  get id(): string {
    return this.#options.id;
  }

  get terminal(): boolean {
    return this.#options.terminal;
  }

  /** How it ended; undefined while it runs. */
  get end(): ProcessEnd | undefined {
    return this.#end;
  }

  /** Resolves with its end; with undefined when it went with its machine, unseen. */
  get over(): Promise<ProcessEnd | undefined> {
    return this.#over.promise;
  }

  /** Has its output from the guest from now on: what the log lacks, as far as the guest kept it. */
  async follow(guest: Guest, signal: AbortSignal): Promise<void> {
    this.#access = undefined;
    const { id, log } = this.#options;
    this.#access = await guest.followMain(id, log.position, this, signal);
  }

  /** Throws `AGENT_DISCONNECTED` while there is no channel, `WRONG_STATE` after the end. */
  get access(): MainProcessAccess {
    if (this.#isOver)
      throw new PodnetError("WRONG_STATE", "The main process has ended", {
        hint: "Start the pod again",
      });
    if (this.#access !== undefined) return this.#access;
    throw new PodnetError("AGENT_DISCONNECTED", "The agent of the pod is not connected", {
      hint: "podnetd reaches it again as soon as it answers",
    });
  }

  /** Sends a signal; false when it cannot be delivered. */
  async trySignal(signal: number): Promise<boolean> {
    try {
      await this.access.signal(signal);
      return true;
    } catch {
      return false;
    }
  }

  output(stderr: boolean, data: Uint8Array, at: number): number {
    this.#readers.output(stderr, data);
    return this.#options.log.write(this.#options.now(), stderr, data, at);
  }

  ended(end: ProcessEnd): void {
    if (this.#isOver) return;
    this.#end = end;
    this.#finish();
    this.#options.onEnd(end);
  }

  /**
   * Output from now on, and the end. It ends without an end when the caller reads so slowly that it
   * would miss output, or when podnetd ends.
   */
  attach(signal: AbortSignal): AsyncGenerator<ProcessEvent> {
    return this.#readers.attach(signal);
  }

  /** The machine is gone, or podnetd lets go of the pod. */
  [Symbol.dispose](): void {
    if (!this.#isOver) this.#finish();
    this.#options.log.close();
  }

  #finish(): void {
    this.#isOver = true;
    this.#readers.end(this.#end);
    this.#over.resolve(this.#end);
  }
}
