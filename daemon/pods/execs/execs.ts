import type { ExecSpec } from "../../../api/validate/exec.ts";
import { PodnetError, toPodnetError } from "../../../core/errors.ts";
import type { ExecSession, Guest } from "../../../guest-init/channel/guest.ts";
import type { GuestTime } from "../../../guest-init/channel/guest-time.ts";
import type { Activity } from "../lifetime/activity.ts";
import { FollowedOutput } from "./followed-output.ts";

/** How a program goes: its exit code is what the guest says. */
export type ExecState =
  | { readonly kind: "running" }
  | { readonly kind: "exited"; readonly code: number; readonly finishedMs: number }
  /** How it ended is not known: the guest was lost, or the program's time was up. */
  | { readonly kind: "failed"; readonly error: PodnetError; readonly finishedMs: number };

/** Programs without a caller that are held for one machine, whether they run or have ended. */
export const mostDetached = 32;

/** A program that was started in a guest. */
export class Exec {
  readonly spec: ExecSpec;
  readonly startedMs = Date.now();
  /** Output of a detached one; an attached one's goes to its caller alone. */
  readonly output: FollowedOutput | undefined;
  readonly #session: ExecSession;
  readonly #over = Promise.withResolvers<void>();
  #state: ExecState = { kind: "running" };

  constructor(spec: ExecSpec, session: ExecSession, { detached }: { readonly detached: boolean }) {
    this.spec = spec;
    this.#session = session;
    this.output = detached ? new FollowedOutput() : undefined;
  }

  get id(): string {
    return this.#session.id;
  }

  get state(): ExecState {
    return this.#state;
  }

  /** Resolves when it has ended, however that was. */
  get over(): Promise<void> {
    return this.#over.promise;
  }

  signal(number: number): Promise<void> {
    return this.#session.signal(number);
  }

  exited(code: number): void {
    this.#end({ kind: "exited", code, finishedMs: Date.now() });
  }

  failed(thrown: unknown): void {
    this.#end({ kind: "failed", error: toPodnetError(thrown), finishedMs: Date.now() });
  }

  #end(state: ExecState): void {
    if (this.#state.kind !== "running") return;
    this.#state = state;
    this.output?.end();
    this.#over.resolve();
  }
}

/**
 * The programs of one machine, by the ids that podnetd drew. In memory alone: a program's streams
 * end with podnetd's connection, and its exit is reported once.
 */
export class Execs {
  readonly #time: GuestTime;
  /** A pod with a program is used. */
  readonly #activity: Pick<Activity, "begin">;
  readonly #all = new Map<string, Exec>();
  /** Detached ones that are being started. */
  #starting = 0;

  constructor(time: GuestTime, activity: Pick<Activity, "begin">) {
    this.#time = time;
    this.#activity = activity;
  }

  /** Oldest first. */
  list(): Exec[] {
    return [...this.#all.values()];
  }

  get(id: string): Exec | undefined {
    return this.#all.get(id);
  }

  /**
   * Starts a program without input. Its output is read whether anyone follows it or not, so that
   * it never holds up others. Throws `LIMIT_REACHED`, and what `Guest.exec` throws. `signal` counts
   * until it runs.
   */
  async start(guest: Guest, spec: ExecSpec, signal: AbortSignal): Promise<Exec> {
    this.#makeRoom();
    const stop = new AbortController();
    const gaveUp = (): void => stop.abort(signal.reason);
    signal.addEventListener("abort", gaveUp, { once: true });
    this.#starting++;
    try {
      const { exec, session } = await this.#begin(guest, spec, stop.signal, true);
      // A failure ends the events, too.
      if (!spec.terminal) session.closeInput().catch(() => {});
      void keep(exec, session);
      return exec;
    } finally {
      this.#starting--;
      signal.removeEventListener("abort", gaveUp);
    }
  }

  /** Starts a program whose caller gets its output; it is known until it ends, as by `signal`. */
  async attach(guest: Guest, spec: ExecSpec, signal: AbortSignal): Promise<Begun> {
    const begun = await this.#begin(guest, spec, signal, false);
    void begun.exec.over.then(() => this.#all.delete(begun.exec.id));
    return begun;
  }

  async #begin(
    guest: Guest,
    spec: ExecSpec,
    signal: AbortSignal,
    detached: boolean,
  ): Promise<Begun> {
    const late = new AbortController();
    const session = await guest.exec(spec, AbortSignal.any([signal, late.signal]));
    const exec = new Exec(spec, session, { detached });
    this.#all.set(exec.id, exec);
    const use = this.#activity.begin();
    void exec.over.then(() => use[Symbol.dispose]());
    const { timeoutMs } = spec;
    if (timeoutMs !== undefined) {
      const timer = this.#time.after(timeoutMs, () => late.abort(tooLate(timeoutMs)));
      void exec.over.then(() => timer[Symbol.dispose]());
    }
    return { exec, session };
  }

  /** The one that ended first makes room for another. */
  #makeRoom(): void {
    const detached = this.list().filter(({ output }) => output !== undefined);
    if (detached.length + this.#starting < mostDetached) return;
    const ended = detached.filter(({ state }) => state.kind !== "running");
    const [first] = ended.toSorted((a, b) => finishedMs(a) - finishedMs(b));
    if (first === undefined) {
      throw new PodnetError(
        "LIMIT_REACHED",
        `${mostDetached} programs without a caller run in the pod already`,
        { hint: "End one: podnet execs kill ID", details: { limit: mostDetached } },
      );
    }
    this.#all.delete(first.id);
  }
}

/** A program that runs, and the way to it. */
export interface Begun {
  readonly exec: Exec;
  readonly session: ExecSession;
}

const finishedMs = ({ state }: Exec): number => (state.kind === "running" ? 0 : state.finishedMs);

const tooLate = (ms: number): PodnetError =>
  new PodnetError("DEADLINE_EXCEEDED", `The program did not end in ${ms} ms, and was killed`, {
    hint: "Give it more time, or none to let it run as long as it likes",
  });

/** Keeps what a program writes, up to its end. */
async function keep(exec: Exec, session: ExecSession): Promise<void> {
  try {
    for await (const event of session.events) {
      if (event.kind === "exit") exec.exited(event.code);
      else exec.output?.push(event.kind, event.data);
    }
  } catch (thrown) {
    exec.failed(thrown);
  }
}
