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
  /** The host goes on believing in the addresses of pods that are gone. */
  "port.forget": (parts) => withNetlink(parts, { deleteNeighbour: () => Promise.resolve(true) }),
  /** Links that bear our mark and have no row stay. */
  sweep: (parts) => withNetlink(parts, { deleteLink: () => Promise.resolve(true) }),
};

function withNetlink(
  parts: Parameters<Plant>[0],
  instead: Partial<NonNullable<Parameters<Plant>[0]["kernel"]>["netlink"]>,
): ReturnType<Plant> {
  const { kernel } = parts;
  if (kernel === undefined) return parts;
  return { ...parts, kernel: { ...kernel, netlink: { ...kernel.netlink, ...instead } } };
}
