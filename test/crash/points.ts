import type { Change } from "./changes.ts";

/**
 * Failpoints as podnetd records them (`daemon/main/failpoints.ts`): `netlink:add bridge:before#1`.
 */
export type Point = string;

export type Action = "kill" | "error" | "hang";

/** Operations whose failpoints are visited. */
export type Operation =
  | "create"
  /** A create from a template that is made for it. */
  | "clone"
  /** What follows the failure of a create's last call. */
  | "undo"
  | "delete"
  /** A pod's machine ends, and the pod is started again. */
  | "again"
  /** A start of podnetd with a running pod and one that is half made. */
  | "recover"
  /** A start of podnetd with a pod in a foreign machine. */
  | "reattach"
  /** A first start of podnetd. */
  | "start"
  /** `podnet down` with a running pod. */
  | "down"
  | Change;

/** Points that end the bystander too. */
export const endsAll = (operation: Operation): boolean =>
  operation === "start" || operation === "down";

/** One visit. */
export interface Case {
  readonly operation: Operation;
  readonly point: Point;
  readonly action: Action;
}

export const title = ({ operation, point, action }: Case): string =>
  `${operation} ${point}=${action}`;

interface Passed {
  readonly before: number;
  readonly after: number;
}

/**
 * The points to visit: those that every record of the same run holds, in the order of the first. An
 * attempt that fails and is repeated (a socket that is not there yet) is one point, however often
 * it was repeated: only the calls that came back count beyond the first.
 */
export function pointsIn(...records: readonly (readonly string[])[]): Point[] {
  const counted = records.map(count);
  const [first = []] = records;
  return first.filter((line) => {
    const { name, side, number } = parse(line);
    if (side === "failed") return false;
    return counted.every((passed) => {
      const { before, after } = passed.get(name) ?? { before: 0, after: 0 };
      return number <= (side === "after" ? after : Math.min(before, Math.max(1, after)));
    });
  });
}

/** Calls that only look. */
export const looks =
  /^(?:netlink:(?:read|(?:nftables )?list .*)|command:ip6?tables-\w+-save|qmp:(?:query-.*|qom-list))$/;

/**
 * Calls after which nothing goes on outside of podnetd, as it does in a child that was started, in
 * QEMU or in a guest.
 */
const finished = /^(?:netlink|ioctl|command|commit|file):/;

/**
 * Numbers points of one record by what a kill leaves. Between the end of a finished call and the
 * beginning of the next one nothing changes outside of podnetd, and calls that only look change
 * nothing: kills at these points leave the same and share a number.
 */
export function leftBehind(points: readonly Point[]): ReadonlyMap<Point, number> {
  const numbers = new Map<Point, number>();
  let number = 0;
  for (const point of points) {
    const { name, side } = parse(point);
    const changes = side === "after" && !looks.test(name);
    if (changes) number++;
    numbers.set(point, number);
    if (changes && !finished.test(name)) number++;
  }
  return numbers;
}

function count(record: readonly string[]): ReadonlyMap<string, Passed> {
  const counted = new Map<string, { before: number; after: number }>();
  for (const line of record) {
    const { name, side } = parse(line);
    const passed = counted.get(name) ?? { before: 0, after: 0 };
    if (side !== "failed") passed[side]++;
    counted.set(name, passed);
  }
  return counted;
}

/** The parts of a recorded line; throws when it is none. */
export function parse(line: string): {
  readonly name: string;
  readonly boundary: string;
  readonly side: "before" | "after" | "failed";
  readonly number: number;
} {
  const [, name, boundary, side, number] =
    /^(([a-z]+):.+):(before|after|failed)#(\d+)$/.exec(line) ?? [];
  if (name === undefined || boundary === undefined) throw new Error(`Not a failpoint: "${line}"`);
  return { name, boundary, side: side as "before" | "after" | "failed", number: Number(number) };
}

/**
 * Errors that cannot be: on Linux close(2) lets go of the descriptor whatever it answers, and an
 * open(2), memfd_create(2) or socket(2) that fails gives none.
 */
const impossibleErrors =
  /^(?:ioctl:close tap:before|(?:file:(?:make (?:qemu\.log|overlay|memory file seed)|open (?:disk|share|qemu\.log))|socket:(?:open packet socket|nfnetlink|nftables)):after)#/;

/**
 * Errors after which a file stays until podnetd starts again, as podnetd promises: it logs that a
 * kept plan could not be removed, and its next start removes the file.
 */
const untilRestart = /^file:remove kept plan:before#/;

export const impossible = ({ point, action }: Pick<Case, "point" | "action">): boolean =>
  action === "error" && (impossibleErrors.test(point) || untilRestart.test(point));

/**
 * The look for drift some time after a link has changed: it may fall into an operation on a pod,
 * and need not. As part of `recover`, `reattach` and `start` the same effects are visited.
 */
export const byChance = (operation: Operation, point: Point): boolean =>
  !(operation === "recover" || operation === "reattach" || operation === "start") &&
  /^netlink:list (?:links|addresses):/.test(point);
