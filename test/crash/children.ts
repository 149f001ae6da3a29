/**
 * Which effect each process belongs to that podnetd starts. An effect of `command` or `spawn`
 * starts one, in the same turn of the event loop in which it goes on after its `before` was
 * recorded: whichever run side by side, the one that began first starts its own first. So a process
 * is never taken for that of an effect which only happens to be open.
 */
export class Children {
  /** Effects that have begun and started nothing yet, by name, the oldest first. */
  readonly #waiting: string[] = [];
  /** Of effects that are open, by name, how many have started theirs. */
  readonly #started = new Map<string, number>();

  begins(name: string): void {
    this.#waiting.push(name);
  }

  /** A process is started; whether an effect accounts for it. */
  takesOne(): boolean {
    const name = this.#waiting.shift();
    if (name === undefined) return false;
    this.#started.set(name, this.#startedBy(name) + 1);
    return true;
  }

  /** An effect is over; whether it had started one, which only a call that failed may not have. */
  ends(name: string, failed: boolean): boolean {
    const started = this.#startedBy(name);
    if (started > 0) {
      this.#started.set(name, started - 1);
      return true;
    }
    const at = this.#waiting.indexOf(name);
    if (at >= 0) this.#waiting.splice(at, 1);
    return failed;
  }

  #startedBy(name: string): number {
    return this.#started.get(name) ?? 0;
  }
}
