import type { Role } from "../../api/roles.ts";
import { printable } from "../../core/names.ts";
import { groupId, userId } from "../../linux/processes/accounts.ts";

/**
 * The holder of a role: a process by user or group, or a TLS client by a name in its certificate.
 */
export type AccessEntry =
  | { readonly kind: "uid" | "gid"; readonly id: number }
  | { readonly kind: "cert"; readonly name: string };

/** Who has which role beyond what root and the daemon's own user have: all of them. */
export type AccessConfig = Readonly<Record<Role, readonly AccessEntry[]>>;

/**
 * Reads `uid:NAME`, `gid:NAME` (or numbers) or `cert:NAME`. Throws `TypeError` with what to write.
 * Names are looked up now: one that is made later takes a restart.
 */
export function parseAccessEntry(text: string): AccessEntry {
  const [, kind, name = ""] = /^(uid|gid|cert):(.{1,255})$/u.exec(text) ?? [];
  if (kind === "cert") return { kind, name };
  if (kind !== "uid" && kind !== "gid") {
    throw new TypeError(`"${printable(text)}" is not of the form uid:NAME, gid:NAME or cert:NAME`);
  }
  const id = kind === "uid" ? userId(name) : groupId(name);
  // 4294967295 is (uid_t) -1, which is not a user: the kernel reports it for users that it cannot
  // map.
  if (id === undefined || id >= 0xffff_ffff) {
    throw new TypeError(`there is no ${kind === "uid" ? "user" : "group"} "${printable(name)}"`);
  }
  return { kind, id };
}
