import { assertNever } from "../../core/brand.ts";
import type { Change } from "../model/change.ts";
import { isUnfinished } from "./diff-network.ts";
import { endLinks } from "./diff-pod.ts";
import type { ObservedLink } from "../model/observed.ts";
import { type Owner, parseOwner } from "../model/ownership.ts";

/** The objects that have a row, and therefore stay. */
export interface Known {
  readonly pods: ReadonlySet<string>;
  /** The pods whose rules stay as well. Default: all. */
  readonly ruled?: ReadonlySet<string>;
  readonly networks: ReadonlySet<string>;
  /** The overlays that stay. Default: all. */
  readonly overlays?: ReadonlySet<string>;
  /** Attachments. */
  readonly attachments?: ReadonlySet<string>;
  /** The services that stay. Default: all. */
  readonly services?: ReadonlySet<string>;
}

export const nothingKnown: Known = {
  pods: new Set(),
  networks: new Set(),
  overlays: new Set(),
  attachments: new Set(),
  services: new Set(),
};

/**
 * Whether a marked thing has no row. What networks share goes with the last of them and is decided
 * elsewhere.
 */
export function isOrphan(owner: Owner, known: Known): boolean {
  switch (owner.kind) {
    case "pod":
      return !known.pods.has(owner.key);
    case "network":
      return !known.networks.has(owner.key);
    case "overlay":
      return known.overlays !== undefined && !known.overlays.has(owner.key);
    case "attachment":
      return known.attachments !== undefined && !known.attachments.has(owner.key);
    case "service":
      return known.services !== undefined && !known.services.has(owner.key);
    case "chain":
      return false;
    default:
      return assertNever(owner.kind);
  }
}

/**
 * The changes that end every link that bears our mark and has no row. What bears no mark is never
 * in them. Pure.
 */
export function sweepLinks(
  links: readonly ObservedLink[],
  known: Known,
  hostSeed: string,
): Change[] {
  return endLinks(
    links.filter((link) => {
      const owner = parseOwner(link.alias);
      return owner === undefined ? isUnfinished(link, hostSeed) : isOrphan(owner, known);
    }),
  );
}
