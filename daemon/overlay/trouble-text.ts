import { assertNever } from "../../core/brand.ts";
import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import { subnetsText } from "../../overlay/flannel/key.ts";
import type { Trouble } from "../../overlay/lease-state.ts";
import type { Conflict } from "../../overlay/peers.ts";

/** What keeps a host from having its lease as it should be, in one line. */
export function troubleText(trouble: Trouble): string {
  switch (trouble.kind) {
    case "config-missing":
      return "etcd has no configuration of the overlay yet";
    case "config-invalid":
      return trouble.error.message;
    case "exhausted":
      return "no subnet is free";
    case "lost":
      return `the lease of ${subnetsText(trouble.subnets)} is gone, and is being registered again`;
    case "taken":
      return `${trouble.holder} has the lease of ${subnetsText(trouble.subnets)}`;
    case "shared":
      return `the lease ${trouble.holder} names ${trouble.ip}, which is this host's address`;
    case "no-address":
      return `this host has no address of IPv${trouble.family} for others to send to`;
    case "misfit":
      return `${subnetsText(trouble.subnets)} is none of the overlay's subnets any more`;
    case "failing":
      return hinted(toPodnetError(trouble.error));
    default:
      return assertNever(trouble);
  }
}

/** Why what etcd has is not heard, one line each; that it is away is told by for how long. */
export const unreadTexts = (reasons: readonly unknown[]): readonly string[] => {
  const errors = reasons.map((reason) => toPodnetError(reason));
  return [...new Set(errors.filter(({ code }) => code !== "ETCD_UNREACHABLE").map(hinted))];
};

/** What etcd does not permit is put right by whoever reads of it: how, too. */
const hinted = ({ code, message, hint }: PodnetError): string =>
  code === "ETCD_DENIED" && hint !== undefined ? `${message}; ${hint}` : message;

/** That other hosts are those of another boot, in one line; none where they are not. */
export const recalledText = (hosts: number, writtenMs: number | undefined): readonly string[] =>
  hosts === 0 || writtenMs === undefined
    ? []
    : [
        `etcd has not been heard since this host was booted: ${hosts} other hosts are as they were at ${new Date(writtenMs).toISOString()}`,
      ];

/** Which hosts cannot both be right, in one line. */
export function conflictText(conflict: Conflict): string {
  const hosts = conflict.keys.join(" and ");
  return conflict.kind === "address"
    ? `the leases ${hosts} name the same address, ${conflict.ip}`
    : `the leases ${hosts} have addresses in common`;
}
