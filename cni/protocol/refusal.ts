import { type ErrorCode, PodnetError } from "../../core/errors.ts";

/** CNI's error numbers (specification, "Error"); from 100 on they are a plugin's own. */
export const cniError = {
  version: 1,
  field: 2,
  unknownContainer: 3,
  environment: 4,
  io: 5,
  decode: 6,
  config: 7,
  netns: 8,
  tryLater: 11,
  /** STATUS: no ADD can be served. */
  notAvailable: 50,
  /** STATUS: containers cannot be added, and existing ones may have lost their network. */
  limited: 51,
  unclassified: 999,
} as const;

/** An error that is answered with CNI's number `cni`, whatever its own code is. */
export function refusal(
  message: string,
  about: {
    readonly cni: number;
    readonly hint: string;
    readonly code?: ErrorCode;
    readonly field?: string;
    readonly cause?: unknown;
  },
): PodnetError {
  return new PodnetError(about.code ?? "INVALID_ARGUMENT", message, {
    hint: about.hint,
    details: { cni: about.cni },
    ...(about.field === undefined ? {} : { field: about.field }),
    ...(about.cause === undefined ? {} : { cause: about.cause }),
  });
}
