/** User ids for machines and podnetd's helpers, first and last included. */
export interface UidRange {
  readonly first: number;
  readonly last: number;
}

/** The users of programs that podnetd starts for itself: the last ones of the range. Pure. */
export const helperUids = ({ last }: UidRange) => ({ relay: last, images: last - 1 });

const helpers = 2;

/** Reads `FIRST-LAST`. Throws a `TypeError` in words for people. Pure. */
export function parseUidRange(text: string): UidRange {
  const match = /^([0-9]{1,10})-([0-9]{1,10})$/.exec(text);
  const [first, last] = [Number(match?.[1]), Number(match?.[2])];
  // Ids below 1000 are the system's own; the last id of all means "none" (chown(2)).
  if (match === null || first > last || first < 1000 || last > 0xffff_fffe)
    throw new TypeError("write FIRST-LAST with ids from 1000 on, such as 2000000000-2000065535");
  if (last - first < helpers)
    throw new TypeError(
      `give ${helpers + 1} ids or more: the last ${helpers} are podnetd's helpers'`,
    );
  return { first, last };
}

/** The lowest id that is free for a machine; undefined when all are taken. Pure. */
export function freeUid({ first, last }: UidRange, taken: ReadonlySet<number>): number | undefined {
  for (let uid = first; uid <= last - helpers; uid++) if (!taken.has(uid)) return uid;
  return undefined;
}

/**
 * Whether all ids of the range exist in this user namespace, by /proc/self/uid_map
 * (user_namespaces(7)). Pure.
 */
export function isMapped({ first, last }: UidRange, uidMap: string): boolean {
  return uidMap.split("\n").some((line) => {
    const [inside = NaN, , length = NaN] = line.trim().split(/\s+/).map(Number);
    return first >= inside && last < inside + length;
  });
}
