import { PodnetError } from "./errors.ts";

/**
 * The connections that each pod may keep tracked on the host: the limits there are. Each has rules
 * of its own in the kernel, which takes longer to count the more there are.
 */
export const connectionShares = [512, 2048, 8192, 32768] as const;
type ConnectionShare = (typeof connectionShares)[number];

/** The limit of a network that names none. */
export const usualShare: ConnectionShare = 8192;

/** Checks a limit; 0 is none. Throws `INVALID_ARGUMENT`. */
export function checkConnectionShare(count: number, field = "connections"): number {
  if (count === 0 || connectionShares.some((each) => each === count)) return count;
  throw new PodnetError("INVALID_ARGUMENT", `${count} is not a limit of connections`, {
    field,
    hint: `Use ${connectionShares.join(", ")}, or 0 for no limit`,
  });
}
