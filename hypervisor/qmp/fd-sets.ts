/**
 * The numbers of the sets that have a descriptor with this text, from an answer to `query-fdsets`;
 * other entries are skipped.
 */
export function parseFdSets(answer: unknown, opaque: string): readonly number[] {
  const sets = Array.isArray(answer) ? (answer as readonly unknown[]) : [];
  return sets.flatMap((each) => {
    if (!isRecord(each)) return [];
    const { "fdset-id": set, fds } = each;
    const isOne =
      Array.isArray(fds) && fds.some((fd: unknown) => isRecord(fd) && fd["opaque"] === opaque);
    return isOne && Number.isSafeInteger(set) ? [set as number] : [];
  });
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null;
