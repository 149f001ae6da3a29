/**
 * Where the time of a call goes: podnetd's own effects with their times (`PODNET_FAILPOINTS`,
 * `times:`), cut into parts at the effects that end them. Pure. Times are milliseconds of
 * CLOCK_MONOTONIC, which all processes of a machine share.
 */

/** Who works, or is waited for; `program` is the plugin of a runtime. */
export const parties = ["daemon", "QEMU", "guest", "kernel", "program"] as const;
type Party = (typeof parties)[number];

/** One side of an effect, e.g. `qmp:cont:after`, or a moment that was measured otherwise. */
export interface Mark {
  readonly at: number;
  readonly name: string;
}

/** A stretch of a call. */
export interface Stage {
  readonly title: string;
  /** The last mark whose name begins so ends it; a stage without such a mark is left out. */
  readonly until?: string;
  /** Whose the time is in which no effect is open. */
  readonly party: Party;
}

export interface Part {
  readonly title: string;
  readonly party: Party;
  readonly from: number;
  readonly to: number;
  readonly shares: Readonly<Record<Party, number>>;
}

/** The clock of marks, now. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** Reads what podnetd has written; skips a last line that is not complete. */
export function parseTimes(text: string): readonly Mark[] {
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => {
      const space = line.indexOf(" ");
      return { at: Number(line.slice(0, space)) * 1000, name: line.slice(space + 1) };
    });
}

interface Open {
  readonly party: Party;
  readonly from: number;
  readonly to: number;
}

/** Of those alongside each other, the later one counts: a call to the kernel holds the thread. */
const priority: readonly Party[] = ["guest", "QEMU", "kernel"];

function partyOf(boundary: string): Party {
  if (boundary === "qmp" || boundary === "spawn") return "QEMU";
  return boundary === "channel" ? "guest" : "kernel";
}

/** The effects' stretches: from `before` to the next `after` or `failed` of its name. */
function openEffects(marks: readonly Mark[]): readonly Open[] {
  const begun = new Map<string, number[]>();
  const found: Open[] = [];
  for (const { at, name } of marks) {
    const cut = name.lastIndexOf(":");
    const what = name.slice(0, cut);
    if (name.slice(cut + 1) === "before") {
      begun.set(what, [...(begun.get(what) ?? []), at]);
      continue;
    }
    const from = begun.get(what)?.shift();
    if (from === undefined) continue;
    found.push({ party: partyOf(what.slice(0, what.indexOf(":"))), from, to: at });
  }
  return found;
}

/** Cuts a call into parts, which follow one another without a gap and sum up to it. */
export function cut(
  stages: readonly Stage[],
  marks: readonly Mark[],
  [begin, end]: readonly [begin: number, end: number],
): readonly Part[] {
  const within = marks.filter(({ at }) => at >= begin && at <= end);
  const effects = openEffects(within);
  const parts: Part[] = [];
  let from = begin;
  for (const { title, until, party } of stages) {
    const to =
      until === undefined ? end : within.findLast(({ name }) => name.startsWith(until))?.at;
    if (to === undefined || to < from) continue;
    parts.push({
      title,
      party,
      from: from - begin,
      to: to - begin,
      shares: shares(effects, party, from, to),
    });
    from = to;
  }
  return parts;
}

function shares(
  effects: readonly Open[],
  otherwise: Party,
  from: number,
  to: number,
): Record<Party, number> {
  const sums = { daemon: 0, QEMU: 0, guest: 0, kernel: 0, program: 0 };
  const open = effects.filter((each) => each.to > from && each.from < to);
  const edges = open.flatMap((each) => [Math.max(each.from, from), Math.min(each.to, to)]);
  const moments = [...new Set([from, ...edges, to])].sort((a, b) => a - b);
  for (const [n, start] of moments.slice(0, -1).entries()) {
    const stop = moments[n + 1] as number;
    const there = open.filter((each) => each.from <= start && each.to >= stop);
    const whose = priority.findLast((party) => there.some((each) => each.party === party));
    sums[whose ?? otherwise] += stop - start;
  }
  return sums;
}

/**
 * What is usual of several calls: for each part that half of them have, the median of its length
 * and of its shares, one after the other.
 */
export function usual(calls: readonly (readonly Part[])[]): readonly Part[] {
  const [longest = []] = calls.toSorted((a, b) => b.length - a.length);
  const parts: Part[] = [];
  let from = 0;
  for (const { title, party } of longest) {
    const alike = calls.flatMap((call) => call.filter((part) => part.title === title));
    if (alike.length * 2 < calls.length) continue;
    const share = (of: Party) => [of, median(alike.map((part) => part.shares[of]))] as const;
    const to = from + median(alike.map((part) => part.to - part.from));
    const shares = Object.fromEntries(parties.map(share)) as Record<Party, number>;
    parts.push({ title, party, from, to, shares });
    from = to;
  }
  return parts;
}

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
