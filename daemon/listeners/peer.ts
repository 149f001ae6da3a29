import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { createContextKey } from "@connectrpc/connect";
import {
  descriptorOf,
  type PeerCredentials,
  peerCredentials,
  peerGroups,
} from "../../linux/sockets/unix-socket.ts";

/** Who calls: the process behind the unix socket, or the names in the client's certificate. */
export type Peer =
  | ({ readonly kind: "unix"; readonly groups: readonly number[] } & PeerCredentials)
  | { readonly kind: "tls"; readonly names: readonly string[] }
  | { readonly kind: "unknown" };

export const peerKey = createContextKey<Peer>({ kind: "unknown" }, { description: "who calls" });

/**
 * Who connected to the unix socket, as the kernel noted it then; `unknown` once the connection is
 * gone.
 */
export function unixPeer(socket: Socket): Peer {
  const fd = descriptorOf(socket);
  if (fd === undefined) return { kind: "unknown" };
  return { kind: "unix", ...peerCredentials(fd), groups: peerGroups(fd) };
}

/**
 * The names in a client's certificate, which the handshake has verified: common name, then DNS, URI
 * and e-mail names.
 */
export function tlsPeer(socket: TLSSocket): Peer {
  const { subject, subjectaltname = "" } = socket.getPeerCertificate();
  // Several common names come as an array, which the types do not know of.
  const common = [(subject?.CN ?? []) as string | readonly string[]].flat();
  return { kind: "tls", names: [...new Set([...common, ...altNames(subjectaltname)])] };
}

/**
 * Node writes the names as `DNS:a, URI:b`; one with a comma or quote in it, which could pass for
 * two, as a JSON string.
 */
export function altNames(text: string): string[] {
  return [...text.matchAll(/(?:^|, )(?:DNS|URI|email):("(?:[^"\\]|\\.)*"|[^,]*)/g)].flatMap(
    ([, name = ""]) => (name.startsWith('"') ? unquoted(name) : name),
  );
}

/** An unreadable name gives no names. */
function unquoted(quoted: string): readonly string[] {
  try {
    return [JSON.parse(quoted) as string];
  } catch {
    return [];
  }
}

/** Who it is, for people; without numbers that differ from call to call. */
export function peerText(peer: Peer): string {
  switch (peer.kind) {
    case "unix":
      return `uid ${peer.uid}, gid ${peer.gid}`;
    case "tls":
      return `certificate of ${peer.names.join(", ") || "no names"}`;
    default:
      return "an unknown caller";
  }
}
