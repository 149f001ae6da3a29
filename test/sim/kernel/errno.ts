/**
 * A refusal of the fake kernel, by the errno's name; the doors make of it what the real ones would
 * throw.
 */
export class Errno extends Error {
  override readonly name = "Errno";
  readonly code: string;

  constructor(code: string) {
    super(code);
    this.code = code;
  }
}

export function refuseIf(condition: boolean, code: string): asserts condition is false {
  if (condition) throw new Errno(code);
}
