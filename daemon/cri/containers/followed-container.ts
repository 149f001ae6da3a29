import { setTimeout as delay } from "node:timers/promises";
import type { Clock } from "../../../core/clock.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import type {
  MainProcessAccess,
  MainProcessListener,
} from "../../../guest-init/channel/main-process.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";
import type { Log } from "../../../linux/log.ts";
import type { LivePod } from "../../pods/lifecycle/live-pod.ts";
import { OutputReaders, type ProcessEvent } from "../../pods/process/output-readers.ts";
import { ContainerLog } from "./container-log.ts";
import type { ContainerRow } from "./rows.ts";

/** Before the guest is asked again, milliseconds. */
const againMs = 250;

/** How it ended; `gone` with its machine, `lost` when the guest knows of no such container. */
type FollowEnd = ProcessEnd | "gone" | "lost";

export interface FollowedOptions {
  readonly row: ContainerRow;
  /** The file that says how far its log goes. */
  readonly record: string;
  readonly logRoot: string;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  /** The machine that it is in; undefined when that has ended. */
  readonly machine: () => LivePod | undefined;
}

/** A container that runs: its output goes to its log, and its end is awaited. */
export class FollowedContainer implements Disposable {
  readonly over: Promise<FollowEnd>;
  readonly #options: FollowedOptions;
  readonly #stop = new AbortController();
  readonly #readers = new OutputReaders();
  #log: ContainerLog | undefined;
  readonly #reached = Promise.withResolvers<void>();
  /** While there is a connection. */
  #access: MainProcessAccess | undefined;
  /** Without a log. */
  #position = 0;

  constructor(options: FollowedOptions) {
    this.#options = options;
    try {
      this.#log = this.#openLog();
    } catch (thrown) {
      options.log.warn(
        { err: thrown, container: options.row.id },
        "A container runs without its log",
      );
    }
    this.over = this.#follow().finally(() => {
      this.#log?.close();
      this.#readers.end(undefined);
      this.#reached.resolve();
    });
  }

  /** Resolves when there has been a connection, or it has ended before. */
  get reached(): Promise<void> {
    return this.#reached.promise;
  }

  /** Goes on in a new file. Throws as opening one does. */
  reopenLog(): void {
    if (this.#log === undefined) this.#log = this.#openLog();
    else this.#log.reopen();
  }

  /** Output from now on, until its end. */
  attach(signal: AbortSignal): AsyncGenerator<ProcessEvent> {
    return this.#readers.attach(signal);
  }

  /** Its input and terminal. Throws `AGENT_DISCONNECTED` while there is no connection. */
  get access(): MainProcessAccess {
    if (this.#access !== undefined) return this.#access;
    throw new PodnetError("AGENT_DISCONNECTED", "The agent of the sandbox is not connected", {
      hint: "podnetd reaches it again as soon as it answers",
    });
  }

  /** Follows it no more: its end is another's to see. */
  [Symbol.dispose](): void {
    this.#stop.abort();
  }

  #openLog(): ContainerLog | undefined {
    const { row, record, logRoot, log } = this.#options;
    const { log: path } = row.plan;
    if (path === undefined) return undefined;
    return new ContainerLog({ path, root: logRoot, record }, (thrown) => {
      log.warn({ err: thrown, container: row.id }, "Output of a container is not in its log");
    });
  }

  async #follow(): Promise<FollowEnd> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const live = this.#options.machine();
      if (live === undefined) return "gone";
      try {
        const end = await this.#once(live);
        if (end !== undefined) return end;
      } catch (thrown) {
        if (isPodnetError(thrown, "AGENT_REFUSED")) return "lost";
      }
      await delay(againMs, undefined, { signal, ref: false }).catch(() => {});
    }
    return "gone";
  }

  /** Follows it over one connection; undefined when that is lost, or is not there. */
  async #once({ guest, ended }: LivePod): Promise<ProcessEnd | undefined> {
    if (guest === undefined) return undefined;
    const { row, clock } = this.#options;
    const over = Promise.withResolvers<ProcessEnd | undefined>();
    const giveUp = (): void => over.resolve(undefined);
    const listener: MainProcessListener = {
      output: (stderr, data, at) => {
        this.#position = at + data.length;
        this.#readers.output(stderr, data);
        return this.#log?.write(clock.now(), stderr, data, at) ?? data.length;
      },
      ended: (end) => over.resolve(end),
    };
    using _ends = new DisposableStack();
    _ends.defer(guest.onReady(giveUp));
    _ends.defer(guest.onClose(giveUp));
    for (const signal of [this.#stop.signal, ended.signal]) {
      if (signal.aborted) return undefined;
      signal.addEventListener("abort", giveUp, { once: true });
      _ends.defer(() => signal.removeEventListener("abort", giveUp));
    }
    const containers = await guest.containers(this.#stop.signal);
    const from = this.#log?.position ?? this.#position;
    _ends.defer(() => {
      this.#access = undefined;
    });
    this.#access = await containers.follow(row.id, from, listener, this.#stop.signal);
    this.#reached.resolve();
    return await over.promise;
  }
}
