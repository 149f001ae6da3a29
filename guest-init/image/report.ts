/** Says what is being done and how long it took, one line per step. */
export async function step<T>(name: string, work: () => T | Promise<T>): Promise<T> {
  const begin = performance.now();
  const result = await work();
  const seconds = ((performance.now() - begin) / 1000).toFixed(1);
  console.log(`  ${name.padEnd(44)} ${seconds.padStart(6)} s`);
  return result;
}

export const kib = (bytes: number): string => `${Math.round(bytes / 1024)} KiB`;
