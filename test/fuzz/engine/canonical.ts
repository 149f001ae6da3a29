import { deepStrictEqual } from "node:assert";
import type { ErrorCode } from "../../../core/errors.ts";
import { textOf, valueOf } from "./target.ts";

/** What a parser of text people write may refuse with. */
export const refusals: readonly ErrorCode[] = [
  "ADDRESS_INVALID",
  "MAC_INVALID",
  "INVALID_ARGUMENT",
  "CONFIG_INVALID",
  "ADDRESS_RESERVED",
];

/** A parser of one text; what it gives is canonical: it stays the same when it is parsed again. */
export const canonical =
  <T>(parse: (text: string) => T, check: (value: T) => void = () => {}) =>
  (bytes: Uint8Array): void => {
    const value = valueOf(refusals, () => parse(textOf(bytes)));
    if (value === undefined) return;
    deepStrictEqual(parse(String(value)), value);
    check(value);
  };
