/**
 * A `Base` value that only a parser can make, so that unchecked text cannot pass for a checked one.
 */
export type Brand<Base, Name extends string> = Base & { readonly __brand: Name };

/** Makes an unhandled union member a compile error; throws if one arrives at run time anyway. */
export function assertNever(value: never): never {
  throw new TypeError(`Unexpected variant: ${JSON.stringify(value)}`);
}
