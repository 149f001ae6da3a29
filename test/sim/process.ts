import { abortError } from "../../core/aborting.ts";
import { PodnetError } from "../../core/errors.ts";
import type { Doorkeeper } from "./kernel/door.ts";
import type { Random } from "./random.ts";
import type { VirtualTime } from "./time.ts";

/** How likely it is, at each call that leaves the daemon, that something goes wrong with it. */
export interface Weather {
  /** It fails: half of these after it has worked. */
  readonly error: number;
  /** It takes until whoever waits for it gives up, or a minute. */
  readonly hang: number;
  /** The daemon is killed. */
  readonly crash: number;
}

export const calm: Weather = { error: 0, hang: 0, crash: 0 };

/** Thrown into a program that is dead already: nothing it does from here on reaches anything. */
export class Halted extends Error {
  override readonly name = "Halted";
}

/**
 * Longest that anything without a deadline hangs; `linux/processes/command` ends a program after
 * half of it.
 */
const hangMs = 30_000;

/**
 * One life of the daemon, from its start to its crash or end. Every call of it into the world
 * passes here, where it is delayed, refused or never answered; after the end none passes.
 */
export class Process implements Doorkeeper {
  readonly #time: VirtualTime;
  readonly #random: Random;
  readonly #trace: (line: string) => void;
  readonly #weather: () => Weather;
  readonly #ended: () => void;
  readonly #killed: () => void;
  alive = true;

  constructor(parts: {
    readonly time: VirtualTime;
    readonly random: Random;
    readonly trace: (line: string) => void;
    readonly weather: () => Weather;
    readonly ended: () => void;
    readonly killed: () => void;
  }) {
    this.#time = parts.time;
    this.#random = parts.random;
    this.#trace = parts.trace;
    this.#weather = parts.weather;
    this.#ended = parts.ended;
    this.#killed = parts.killed;
  }

  /** SIGKILL: whatever it waits for, it waits for ever. */
  kill(): void {
    if (!this.alive) return;
    this.#trace("daemon killed");
    this.exit();
    this.#killed();
  }

  /** Ends, however: the kernel ends what it held open. */
  exit(): void {
    if (!this.alive) return;
    this.alive = false;
    this.#ended();
  }

  /** A place where it can be killed, and nothing else can go wrong. */
  mayDie(): void {
    if (this.#random.chance(this.#weather().crash)) this.#die();
  }

  now<T>(call: string, body: () => T): T {
    if (!this.alive) throw new Halted(call);
    const weather = this.#weather();
    if (this.#random.chance(weather.crash)) this.#die();
    const fails = this.#random.chance(weather.error);
    if (fails) this.#fail(call, false);
    const result = body();
    this.#trace(call);
    if (this.#random.chance(weather.crash)) this.#die();
    return result;
  }

  later<T>(call: string, body: () => T, signal?: AbortSignal): Promise<T> {
    if (!this.alive) return never();
    const weather = this.#weather();
    const [crash, fails, hangs] = [weather.crash, weather.error, weather.hang].map((chance) =>
      this.#random.chance(chance),
    ) as [boolean, boolean, boolean];
    // close(2) lets go of the descriptor, whatever it answers.
    const late = this.#random.chance(0.5) || call.startsWith("tap close");
    const hanging = hangs && signal !== undefined;
    const before = hanging && !late ? hangMs : this.#latency();
    const after = hanging && late ? hangMs : this.#latency();
    return new Promise((resolve, reject) => {
      const given = (finish: () => void): void => {
        signal?.removeEventListener("abort", onAbort);
        // A dead program's promises stay open.
        if (this.alive) finish();
      };
      const onAbort = (): void => given(() => reject(abortError(signal as AbortSignal, call)));
      if (signal?.aborted === true) return onAbort();
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#time.after(before, () => {
        // What has no waiter any more is not begun.
        if (!this.alive || signal?.aborted === true) return;
        if (crash && !late) return this.kill();
        if (fails && !late) return given(() => this.#refuse(call, reject, false));
        let finish: () => void;
        try {
          const result = body();
          this.#trace(call);
          finish = () => resolve(result);
        } catch (thrown) {
          this.#trace(`${call}: ${thrown instanceof Error ? thrown.message : String(thrown)}`);
          finish = () => reject(thrown);
        }
        if (crash) return this.kill();
        this.#time.after(after, () =>
          given(() => (fails ? this.#refuse(call, reject, true) : finish())),
        );
      });
    });
  }

  /**
   * Calls `body` with what happens in the world, a moment later, if the daemon lives to hear it.
   */
  hears(body: () => void): void {
    this.#time.after(this.#latency(), () => {
      if (this.alive) body();
    });
  }

  #latency(): number {
    // Most answers come at once, some after tens of milliseconds: whatever runs alongside is
    // overtaken now and then.
    return this.#random.chance(0.8) ? this.#random.next() * 2 : this.#random.next() * 60;
  }

  #die(): never {
    this.kill();
    throw new Halted("killed");
  }

  #refuse(call: string, reject: (error: Error) => void, done: boolean): void {
    try {
      this.#fail(call, done);
    } catch (thrown) {
      reject(thrown as Error);
    }
  }

  #fail(call: string, done: boolean): never {
    this.#trace(`${call} FAILS${done ? " having worked" : ""}`);
    throw faultOf(call);
  }
}

const never = <T>(): Promise<T> => new Promise(() => {});

/** The error a call of this name fails with. */
function faultOf(call: string): PodnetError {
  const [room] = call.split(" ", 1) as [string];
  const message = `${call} fails`;
  if (room === "netlink")
    return new PodnetError("NETLINK_FAILED", message, { details: { errno: "ENOBUFS" } });
  if (/^ip6?tables/.test(room))
    return new PodnetError("COMMAND_FAILED", message, { details: { stderr: "xtables lock" } });
  if (room === "qmp") return new PodnetError("QMP_FAILED", message);
  if (room === "guest") return new PodnetError("AGENT_DISCONNECTED", message);
  if (room === "commit") return new PodnetError("STATE_UNWRITABLE", message);
  return new PodnetError("SYSCALL_FAILED", message, { details: { errno: "EIO" } });
}
