import { PodnetError } from "../core/errors.ts";
import { printable } from "../core/names.ts";

/** What an address can belong to. */
export const ownerKinds = ["pod", "attachment", "gateway", "overlay"] as const;
type OwnerKind = (typeof ownerKinds)[number];

/** Whose an address is. One owner may hold any number of addresses. */
export interface Owner {
  readonly kind: OwnerKind;
  /** Unique among owners of the kind; not empty. */
  readonly id: string;
}

/** Refuses what only unchecked callers can pass. Throws `INVALID_ARGUMENT`. */
export function checkOwner({ kind, id }: Owner): void {
  if (ownerKinds.includes(kind) && typeof id === "string" && id !== "") return;
  throw new PodnetError(
    "INVALID_ARGUMENT",
    `"${printable(`${kind}:${id}`)}" cannot own an address`,
    { field: "owner", hint: `Use an id and one of the kinds ${ownerKinds.join(", ")}` },
  );
}
