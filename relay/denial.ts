import type { Decision } from "../policy/decide.ts";
import type { DomainName } from "../policy/domain.ts";

/** What a connection speaks, as far as it has begun. */
export type Speech = "tls" | "http" | "unknown";

/** A fatal alert, access_denied (RFC 8446 section 6.2), in a record that TLS 1.2 reads too. */
const accessDenied = Uint8Array.of(21, 3, 3, 0, 2, 2, 49);

/**
 * The last bytes of a denied connection: TLS has an alert, HTTP a page that names the rule; what
 * speaks neither has none.
 */
export function denialOf(speech: Speech, name: DomainName | null, decision: Decision): Uint8Array {
  if (speech === "tls") return accessDenied;
  return speech === "http" ? forbidden(name, decision) : new Uint8Array();
}

function forbidden(name: DomainName | null, { policy, rule, reason }: Decision): Uint8Array {
  const host = name ?? "this destination";
  const body = new TextEncoder().encode(
    `podnet denies ${host}: policy ${policy}, rule ${rule}: ${reason === "" ? "no reason given" : reason}\n`,
  );
  const head = [
    "HTTP/1.1 403 Forbidden",
    "Content-Type: text/plain; charset=utf-8",
    `Content-Length: ${body.length}`,
    "Cache-Control: no-store",
    "Connection: close",
    "",
    "",
  ].join("\r\n");
  return new Uint8Array(Buffer.concat([Buffer.from(head), body]));
}
