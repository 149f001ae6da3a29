import { runForText, type Processes } from "./exec.ts";
import type { InputStyle } from "./exec-session.ts";

/** How a process ends whose program is not there. */
const notFound = 127;

/**
 * Runs the guest's own small programs. hyperstart's image has a busybox with only a few applets
 * linked by name: what is not found is asked of `busybox` itself, from then on at once.
 */
export class GuestPrograms {
  readonly #processes: Processes;
  readonly #input: InputStyle;
  readonly #applets = new Set<string>();

  constructor(processes: Processes, input: InputStyle) {
    this.#processes = processes;
    this.#input = input;
  }

  /**
   * A program's output and exit code: 127 when neither the program nor busybox's applet exists.
   * Throws as `runForText`.
   */
  async run(
    args: readonly string[],
    signal: AbortSignal,
  ): Promise<{ readonly code: number; readonly stdout: Uint8Array }> {
    const [name = ""] = args;
    if (!this.#applets.has(name)) {
      const result = await this.#run(args, signal);
      if (result.code !== notFound) return result;
    }
    const result = await this.#run(["busybox", ...args], signal);
    if (result.code !== notFound) this.#applets.add(name);
    return result;
  }

  #run(args: readonly string[], signal: AbortSignal) {
    return runForText(this.#processes, this.#input, args, signal);
  }
}
