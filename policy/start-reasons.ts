import type { HelloRefusal } from "./client-hello.ts";
import type { HeadRefusal } from "./request-head.ts";

/** Why the beginning of a connection is refused, for people: what it is, and what to do. */
export const startReasons: Readonly<Record<HelloRefusal | HeadRefusal | "slow", string>> = {
  "not-tls": "it is neither TLS nor HTTP, and says no name",
  "not-http": "it is neither TLS nor HTTP, and says no name",
  slow: "it said no name within ten seconds",
  malformed: "its beginning breaks the protocol's rules",
  "too-long": "its beginning is longer than any client's",
  "hides-name": "Encrypted Client Hello hides the name: turn it off in the client",
  http2: "HTTP/2 without TLS may name a host in each stream: use HTTP/1.1, or TLS",
  tunnel: "it asks for a tunnel or another protocol: connect to the host itself",
  "two-hosts": "its Host field and its target name different hosts",
  "bad-name": "the name in it is not that of a host",
};
