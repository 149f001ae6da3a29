/** A piece of work for `runPool`. */
export interface Job {
  /** Cores that it keeps busy while it runs: 1 for pure computing, 0.25 for what mostly waits. */
  readonly weight: number;
  /**
   * How long it takes, about: the longest begin first, so that none is waited for alone at the end.
   */
  readonly seconds: number;
  /** Nothing runs alongside it. Exclusive jobs come last. */
  readonly exclusive?: boolean | undefined;
  /** Jobs with one name here run one at a time. */
  readonly oneAtATime?: string | undefined;
  readonly run: () => Promise<void>;
}

/** More than a core: it finds room only while little else runs, so it is not left for last. */
const isHeavy = ({ weight }: Job): number => Number(weight > 1);

/**
 * Runs all jobs, as many at a time as weigh no more than `capacity`; one that weighs more runs
 * alone.
 */
export async function runPool(jobs: readonly Job[], capacity: number): Promise<void> {
  const waiting = jobs.toSorted(
    (a, b) =>
      Number(a.exclusive ?? false) - Number(b.exclusive ?? false) ||
      isHeavy(b) - isHeavy(a) ||
      b.seconds - a.seconds,
  );
  const running = new Map<Job, Promise<void>>();
  const fits = (job: Job): boolean => {
    if (running.size === 0) return true;
    const others = [...running.keys()];
    if (job.exclusive === true || others.some(({ exclusive }) => exclusive === true)) return false;
    const name = job.oneAtATime;
    if (name !== undefined && others.some(({ oneAtATime }) => oneAtATime === name)) return false;
    return others.reduce((sum, { weight }) => sum + weight, job.weight) <= capacity;
  };
  while (waiting.length > 0) {
    const next = waiting.findIndex(fits);
    const [job] = next < 0 ? [] : waiting.splice(next, 1);
    if (job === undefined) await Promise.race(running.values());
    else
      running.set(
        job,
        job.run().finally(() => running.delete(job)),
      );
  }
  await Promise.all(running.values());
}
