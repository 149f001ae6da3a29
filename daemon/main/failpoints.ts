import { openSync, writeSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { abortable } from "../../core/aborting.ts";
import { type Boundary, type Effect, type EffectWatch, watchEffects } from "../../core/effect.ts";
import { type ErrorCode, PodnetError } from "../../core/errors.ts";

/**
 * Failpoints: the places at which the crash tests stop podnetd. Every call that leaves the process
 * is one, see `core/effect.ts`; there is no other list. Only the environment variable
 * `PODNET_FAILPOINTS` arms them. It survives a restart, and only the starter of podnetd can set it.
 * Not for users: it is not a configuration key.
 *
 * The variable holds specs, separated by `;`:
 *
 * - `BOUNDARY:WHAT:SIDE#N=ACTION` acts when that side (`before` or `after`) of that effect is
 *   passed the Nth time since the start, for example `netlink:add bridge:before#1=kill`. ACTION is
 *   `kill` (SIGKILL to podnetd itself, at once), `error` (the call fails with the typed error of
 *   its boundary and `details.injected`: not made with `before`, made anyway with `after`) or
 *   `hang:MS` (that many milliseconds later than it should, unless the call's own deadline or
 *   caller ends the wait; a synchronous call holds up the whole process).
 * - `record:FILE` appends a line `BOUNDARY:WHAT:SIDE#N` for each one passed, so that the code
 *   itself enumerates its points; a call that threw has `failed` for a side.
 * - `times:FILE` appends a line `SECONDS BOUNDARY:WHAT:SIDE` for each one passed, by the clock that
 *   all processes of the machine share (CLOCK_MONOTONIC). `scripts/bench profile` reads it.
 * - `from:BOUNDARY:WHAT:SIDE` counts, acts and records only from the first time on that this is
 *   passed, so that counts do not depend on what a start had to repair.
 */

type Action =
  | { readonly kind: "kill" }
  | { readonly kind: "error" }
  | { readonly kind: "hang"; readonly ms: number };

interface Armed {
  readonly points: ReadonlyMap<string, Action>;
  readonly recordTo: string | undefined;
  readonly timesTo: string | undefined;
  readonly from: string | undefined;
}

/**
 * Arms what the variable's value says; undefined or empty arms nothing. Throws `CONFIG_INVALID`.
 */
export function armFailpoints(text: string | undefined): void {
  if (text === undefined || text === "") return;
  watchEffects(new Failpoints(parse(text)));
}

function parse(text: string): Armed {
  const points = new Map<string, Action>();
  let recordTo: string | undefined;
  let timesTo: string | undefined;
  let from: string | undefined;
  for (const spec of text.split(";")) {
    const option = /^(record|times|from):(.+)$/.exec(spec);
    const point = /^([a-z]+:.+:(?:before|after)#[1-9]\d*)=(kill|error|hang:(\d+))$/.exec(spec);
    if (option?.[1] === "record") recordTo = option[2];
    else if (option?.[1] === "times") timesTo = option[2];
    else if (option?.[1] === "from") from = option[2];
    else if (point !== null) points.set(point[1] as string, actionOf(point[2] as string, point[3]));
    else throw refused(spec);
  }
  return { points, recordTo, timesTo, from };
}

function actionOf(word: string, ms: string | undefined): Action {
  if (word === "kill" || word === "error") return { kind: word };
  return { kind: "hang", ms: Number(ms) };
}

const refused = (spec: string): PodnetError =>
  new PodnetError("CONFIG_INVALID", `Failpoint "${spec}" is not understood`, {
    field: "PODNET_FAILPOINTS",
    hint: "Unset PODNET_FAILPOINTS: it is for podnet's own crash tests",
  });

class Failpoints implements EffectWatch {
  readonly #armed: Armed;
  readonly #file: number | undefined;
  readonly #times: number | undefined;
  readonly #passed = new Map<string, number>();
  #counts: boolean;

  constructor(armed: Armed) {
    this.#armed = armed;
    this.#counts = armed.from === undefined;
    // Open until the process ends, which may be at any moment.
    const open = (file: string | undefined) => (file === undefined ? file : openSync(file, "a"));
    this.#file = open(armed.recordTo);
    this.#times = open(armed.timesTo);
  }

  at(effect: Effect, side: "before" | "after"): void {
    const action = this.#pass(effect, side);
    switch (action?.kind) {
      case "kill":
        return killSelf();
      case "error":
        throw injected(effect);
      case "hang":
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, action.ms);
        return;
      case undefined:
        return;
    }
  }

  async atAsync(
    effect: Effect,
    side: "before" | "after",
    limit: AbortSignal | undefined,
  ): Promise<void> {
    const action = this.#pass(effect, side);
    switch (action?.kind) {
      case "kill":
        return killSelf();
      case "error":
        throw injected(effect);
      case "hang":
        await late(action.ms, effect, limit);
        return;
      case undefined:
        return;
    }
  }

  failed(effect: Effect): void {
    this.#pass(effect, "failed");
  }

  #pass({ boundary, what }: Effect, side: "before" | "after" | "failed"): Action | undefined {
    const name = `${boundary}:${what}:${side}`;
    this.#counts ||= name === this.#armed.from;
    if (this.#times !== undefined)
      writeSync(this.#times, `${(Number(process.hrtime.bigint()) / 1e9).toFixed(6)} ${name}\n`);
    if (!this.#counts) return undefined;
    const count = (this.#passed.get(name) ?? 0) + 1;
    this.#passed.set(name, count);
    const point = `${name}#${count}`;
    if (this.#file !== undefined) writeSync(this.#file, `${point}\n`);
    return this.#armed.points.get(point);
  }
}

/**
 * As late as is wanted, unless what limits the call ends the wait, as it would end the call's own.
 */
async function late(ms: number, { what }: Effect, limit: AbortSignal | undefined): Promise<void> {
  if (limit === undefined) return delay(ms);
  const over = new AbortController();
  const waited = delay(ms, undefined, { signal: over.signal });
  waited.catch(() => {});
  try {
    await abortable(waited, limit, `The call "${what}"`);
  } finally {
    // An abandoned timer would keep the process alive.
    over.abort();
  }
}

/** The signal is delivered before kill(2) returns to this thread. */
function killSelf(): void {
  process.kill(process.pid, "SIGKILL");
}

/** The error with which a call of each boundary fails by itself. */
const failures: Readonly<Record<Boundary, readonly [code: ErrorCode, errno: string]>> = {
  netlink: ["NETLINK_FAILED", "ENOBUFS"],
  ioctl: ["SYSCALL_FAILED", "EBUSY"],
  command: ["COMMAND_FAILED", "ENOENT"],
  commit: ["STATE_UNWRITABLE", "ENOSPC"],
  file: ["SYSCALL_FAILED", "ENOSPC"],
  spawn: ["SYSCALL_FAILED", "EAGAIN"],
  signal: ["SYSCALL_FAILED", "EPERM"],
  socket: ["SYSCALL_FAILED", "ENOBUFS"],
  qmp: ["QMP_FAILED", "EIO"],
  channel: ["AGENT_DISCONNECTED", "EPIPE"],
  etcd: ["ETCD_UNREACHABLE", "ECONNRESET"],
  kubernetes: ["KUBERNETES_UNREACHABLE", "ECONNRESET"],
};

function injected({ boundary, what }: Effect): PodnetError {
  const [code, errno] = failures[boundary];
  return new PodnetError(code, `Injected failure: ${what}`, {
    details: { injected: true, errno },
  });
}
