import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { ExecSpec } from "../../api/validate/exec.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { Begun } from "../pods/execs/execs.ts";
import type { LivePod } from "../pods/lifecycle/live-pod.ts";

/** A program that a caller has created, and may have started. */
export interface CreatedExec {
  readonly id: string;
  /** The id of the container that it is for. */
  readonly container: string;
  readonly spec: PlacedExec;
  begun?: Begun;
}

/** A program, and the container of the machine that it runs in, if in one. */
export type PlacedExec = ExecSpec & { readonly container?: string };

/** Programs of one machine that are known by an id, whatever has become of them. */
const mostOfOne = 128;
/** How long hyperd waits for the end of a program that is asked for. */
const waitMs = 10_000;

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const randomId = (): string =>
  `exec-${[...randomBytes(10)].map((byte) => letters[byte % letters.length]).join("")}`;

/** Programs by the ids of hyperd, in memory alone: they go with the machine, and with podnetd. */
export class KnownExecs {
  readonly #byPod = new WeakMap<LivePod, Map<string, CreatedExec>>();

  /** Throws `LIMIT_REACHED` when too many run. */
  create(live: LivePod, container: string, spec: PlacedExec): CreatedExec {
    const all = this.#byPod.get(live) ?? new Map<string, CreatedExec>();
    this.#byPod.set(live, all);
    if (all.size >= mostOfOne) makeRoom(all);
    const created: CreatedExec = { id: randomId(), container, spec };
    all.set(created.id, created);
    return created;
  }

  /** Throws `EXEC_NOT_FOUND` with hyperd's sentence. */
  find(
    live: LivePod | undefined,
    id: string,
    container: { readonly id: string; readonly name: string },
  ): CreatedExec {
    const found = live === undefined ? undefined : this.#byPod.get(live)?.get(id);
    if (found?.container === container.id) return found;
    throw new PodnetError(
      "EXEC_NOT_FOUND",
      `no exec ${printable(id)} exists for container ${printable(container.name)}`,
      { field: "exec", hint: "Ids end with the pod's machine, and with podnetd: create another" },
    );
  }
}

/** The oldest one that does not run makes room. */
function makeRoom(all: Map<string, CreatedExec>): void {
  const [first] = [...all.values()].filter(({ begun }) => begun?.exec.state.kind !== "running");
  if (first === undefined)
    throw new PodnetError("LIMIT_REACHED", `${mostOfOne} programs run in the pod already`, {
      hint: "End one first",
      details: { limit: mostOfOne },
    });
  all.delete(first.id);
}

/** A program's exit code once it has ended. Throws what it failed with, `DEADLINE_EXCEEDED`. */
export async function exitCodeOfExec(
  { begun, id }: CreatedExec,
  signal: AbortSignal,
): Promise<number> {
  if (begun === undefined)
    throw new PodnetError("WRONG_STATE", `exec ${id} has not been started`, {
      hint: "Start it: POST /exec/start",
    });
  const { exec } = begun;
  await endOf(exec.over, signal);
  const { state } = exec;
  if (state.kind === "exited") return state.code;
  if (state.kind === "failed") throw state.error;
  throw new PodnetError("DEADLINE_EXCEEDED", "wait exec exit code timeout", {
    hint: "It runs on: ask again",
  });
}

/** Waits for an end, for so long at most; unless given, as long as hyperd does. */
export async function endOf(
  over: Promise<unknown>,
  signal: AbortSignal,
  ms = waitMs,
): Promise<void> {
  const stop = new AbortController();
  const waiting = delay(ms, undefined, { signal: AbortSignal.any([signal, stop.signal]) });
  await Promise.race([over, waiting.catch(() => {})]);
  stop.abort();
}
