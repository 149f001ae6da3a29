import type * as z from "zod";
import { type Ip, parseIp } from "../../core/address.ts";
import { parseHostname } from "../../core/names.ts";
import type { Reader } from "./reader.ts";
import type { configSchema } from "./schema.ts";

/** How pods find names. */
export interface DnsConfig {
  /** Networks that do not say have a resolver. */
  readonly resolver: boolean;
  /** Suffix of pods' names, in lower case. */
  readonly domain: string;
  /**
   * Servers for names that podnet does not know, for networks without servers; the host's own when
   * empty.
   */
  readonly upstreams: readonly Ip[];
  /**
   * Largest age of an earlier answer that is used when no server answers, milliseconds; 0 disables
   * it.
   */
  readonly staleMs: number;
}

/** The resolver's settings. */
export function dnsConfig(dns: z.infer<typeof configSchema>["dns"], read: Reader): DnsConfig {
  return {
    resolver: dns.resolver,
    domain: read("dns.domain", dns.domain, parseDomain),
    upstreams: read("dns.upstreams", dns.upstreams, (list) => list.map((text) => parseIp(text))),
    staleMs: dns.stale_s * 1000,
  };
}

function parseDomain(text: string): string {
  const domain = parseHostname(text).toLowerCase();
  if (domain === "arpa" || domain.endsWith(".arpa"))
    throw new TypeError("names of addresses end with that");
  return domain;
}
