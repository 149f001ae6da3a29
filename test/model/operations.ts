import type { Holding } from "./addresses.ts";
import type { Operation } from "./operation.ts";
import type { Call } from "./history.ts";

/**
 * The ends of pods, by id: the first word of the first delete, and the answer of the first that
 * found it.
 */
function endsOf(calls: readonly Call[]): Map<string, { begun: number; done: number }> {
  const ends = new Map<string, { begun: number; done: number }>();
  for (const { outcome, invoked, returned } of calls) {
    if (outcome.kind !== "deleted") continue;
    const { begun = Infinity, done = Infinity } = ends.get(outcome.id) ?? {};
    ends.set(outcome.id, { begun: Math.min(begun, invoked), done: Math.min(done, returned) });
  }
  return ends;
}

/**
 * What pods certainly held alongside their first address: from the answer that gave it to the first
 * word of what may take it.
 */
export function certainly(operations: readonly Operation[], calls: readonly Call[]): Holding[] {
  const ends = endsOf(calls);
  return operations.flatMap(({ kind, id = "", thing, name, what, invoked, returned }) => {
    if (kind !== "took" || thing === undefined) return [];
    const takers = operations.filter(
      (other) =>
        other.name === name &&
        other.what === what &&
        (other.kind === "gave" || other.kind === "unclear") &&
        other.returned > invoked,
    );
    const until = Math.min(
      ends.get(id)?.begun ?? Infinity,
      ...takers.map((other) => other.invoked),
    );
    return until <= returned
      ? []
      : [{ address: thing, id: `${id} ${what}`, from: returned, until }];
  });
}

/**
 * When something may have been held: from the first word of what asked for it to the answer of what
 * took it away.
 */
export function maybe(
  operations: readonly Operation[],
  calls: readonly Call[],
): (Operation & { readonly from: number; readonly until: number })[] {
  const ends = endsOf(calls);
  return operations.flatMap((operation) => {
    if (operation.kind === "gave" || operation.kind === "refused") return [];
    const { id, name, what, invoked, returned } = operation;
    const gave = operations.filter(
      (other) =>
        other.kind === "gave" &&
        other.id === id &&
        other.name === name &&
        other.what === what &&
        other.invoked >= returned,
    );
    const until = Math.min(
      ends.get(id ?? "")?.done ?? Infinity,
      ...gave.map((other) => other.returned),
    );
    return [{ ...operation, from: invoked, until }];
  });
}

/** Ports that were refused although they cannot have been held, as text. */
export function refusedFree(
  operations: readonly Operation[],
  calls: readonly Call[],
): readonly string[] {
  const held = maybe(operations, calls);
  return operations
    .filter(({ kind }) => kind === "refused")
    .filter(
      ({ what, invoked, returned }) =>
        !held.some(
          (other) => other.what === what && other.from <= returned && other.until >= invoked,
        ),
    )
    .map(({ name, what, invoked }) => `${what} was refused to ${name} at ${invoked}, and was free`);
}
