import { type Role, roles, suffices } from "../../api/roles.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { AccessConfig, AccessEntry } from "../config/access.ts";
import { type Peer, peerText } from "./peer.ts";

/**
 * The greatest role of a caller; undefined when it has none. Root and the daemon's own user have
 * every role: they could take the daemon's state and pods without it.
 */
export function roleOf(peer: Peer, access: AccessConfig): Role | undefined {
  if (peer.kind === "unix" && (peer.uid === 0 || peer.uid === process.getuid?.())) return "admin";
  return roles.findLast((role) => access[role].some((entry) => fits(entry, peer)));
}

function fits(entry: AccessEntry, peer: Peer): boolean {
  if (peer.kind === "tls") return entry.kind === "cert" && peer.names.includes(entry.name);
  if (peer.kind !== "unix" || entry.kind === "cert") return false;
  if (entry.kind === "uid") return entry.id === peer.uid;
  return entry.id === peer.gid || peer.groups.includes(entry.id);
}

/**
 * Requires a role for `what`, which is named in the message. Throws `UNAUTHENTICATED`,
 * `PERMISSION_DENIED`.
 */
export function demand(peer: Peer, role: Role | undefined, needed: Role, what: string): void {
  if (role !== undefined && suffices(role, needed)) return;
  if (peer.kind === "unknown" || (peer.kind === "tls" && peer.names.length === 0)) {
    throw new PodnetError("UNAUTHENTICATED", "podnetd cannot determine who calls", {
      hint: "Use a certificate with a common name, or a DNS, URI or e-mail name",
    });
  }
  const who = printable(peerText(peer));
  throw new PodnetError(
    "PERMISSION_DENIED",
    `${what} takes the role ${needed}; ${who} has ${role === undefined ? "none" : `the role ${role}`}`,
    {
      hint: `Ask for an entry in access.${needed} of podnetd's configuration: ${entryFor(peer)}`,
      details: { caller: who, role: role ?? "none", needed },
    },
  );
}

const entryFor = (peer: Peer): string =>
  peer.kind === "unix"
    ? `"uid:${peer.uid}", or "gid:..." of one of your groups`
    : `"cert:${printable(peer.kind === "tls" ? (peer.names[0] ?? "") : "")}"`;
