import { createContextKey } from "@connectrpc/connect";
import type { PeerCredentials } from "../../linux/unix-socket.ts";

/** Who calls: the process behind the unix socket, or the name in the client's certificate. */
export type Peer =
  | ({ readonly kind: "unix" } & PeerCredentials)
  | { readonly kind: "tls"; readonly name: string }
  | { readonly kind: "unknown" };

export const peerKey = createContextKey<Peer>({ kind: "unknown" }, { description: "who calls" });
