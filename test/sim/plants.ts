import type { Plant } from "./daemon-life.ts";

/** Faults put in on purpose: each takes one thing out of what undoes. */
export const plants: Readonly<Record<string, Plant>> = {
  /** A failed create's taps stay open. */
  "tap.close": (parts) => ({
    ...parts,
    openTap: (name) => {
      const tap = parts.openTap(name);
      return { ...tap, close: () => Promise.resolve() };
    },
  }),
  /** What an earlier daemon started is not ended. */
  "vm.reap": (parts) => ({ ...parts, driver: { ...parts.driver, reap: () => Promise.resolve() } }),
};
