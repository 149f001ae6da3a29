/** Texts of numbers and times. */

const units = ["B", "kB", "MB", "GB", "TB"] as const;

/** `1.5 MB`: powers of ten, as rates have them. */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

export const rate = (perSecond: number): string => `${bytes(perSecond)}/s`;

export const milliseconds = (ms: number): string =>
  ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;

/** `3 min` since a time. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export const clock = (ms: number): string => new Date(ms).toLocaleTimeString();

/** `1 pod`, `2 pods`. */
export const count = (n: number, one: string): string => `${n} ${one}${n === 1 ? "" : "s"}`;

/** An address without its length. */
export const bare = (address: string): string => address.replace(/\/.*$/, "");
