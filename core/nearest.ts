/**
 * The name that was probably meant by another: the nearest one, when at most a third of the letters
 * differ, two at most. A letter too many, missing, wrong, or exchanged with its neighbour counts as
 * one.
 */
export function nearest(text: string, names: readonly string[]): string | undefined {
  const most = Math.min(2, Math.floor(Math.max(text.length, 3) / 3));
  const [first] = names
    .map((name) => ({ name, far: distance(text.toLowerCase(), name.toLowerCase(), most) }))
    .filter(({ far }) => far <= most)
    .toSorted((a, b) => a.far - b.far);
  return first?.name;
}

/** The beginning of a hint: `Did you mean "web"? `, or nothing when no name is near. */
export function didYouMean(text: string, names: readonly string[]): string {
  const meant = nearest(text, names);
  return meant === undefined ? "" : `Did you mean "${meant}"? `;
}

/** Letters that differ; more than `most` when the lengths say so already. */
function distance(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) > most) return most + 1;
  // Of each beginning of `a` (rows) and of `b` (columns): the row before last, the last one, and
  // the one that is made.
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      const exchanged = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      row[j] = Math.min(
        (last[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (last[j - 1] ?? 0) + same,
        exchanged ? (before[j - 2] ?? 0) + 1 : Infinity,
      );
    }
    [before, last] = [last, row];
  }
  return last[b.length] ?? 0;
}
