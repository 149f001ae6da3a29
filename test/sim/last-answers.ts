/**
 * What is promised of each thing by its name: what was answered last, unless another call about it
 * has begun meanwhile.
 */
export class LastAnswers {
  readonly #promised: Map<string, string | undefined>;
  /** Calls about each thing so far. */
  readonly #calls = new Map<string, number>();

  constructor(promised: Map<string, string | undefined>) {
    this.#promised = promised;
  }

  /** A call begins: the thing may be another one or none from here on, whatever is answered. */
  asked(name: string): (answer: string | undefined) => void {
    this.#promised.delete(name);
    const call = (this.#calls.get(name) ?? 0) + 1;
    this.#calls.set(name, call);
    return (answer) => {
      if (call === this.#calls.get(name)) this.#promised.set(name, answer);
    };
  }
}
