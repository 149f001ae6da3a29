import { isIp, parseIp } from "../../core/address.ts";
import type { GuestDns } from "./configure.ts";

/** The content of resolv.conf, unchanged. */
export interface ResolverWords {
  readonly servers: readonly string[];
  readonly search: readonly string[];
  readonly options: readonly string[];
}

/** Renders resolv.conf (resolv.conf(5)). The words are checked: none holds white space. */
export function renderResolver(dns: ResolverWords): string {
  const lines = dns.servers.map((server) => `nameserver ${server}`);
  if (dns.search.length > 0) lines.push(`search ${dns.search.join(" ")}`);
  if (dns.options.length > 0) lines.push(`options ${dns.options.join(" ")}`);
  return lines.map((line) => `${line}\n`).join("");
}

/**
 * Text that the host accepts as one word of a guest, see `asWord`: any other would cost the guest
 * its whole answer.
 */
const isWord = (word: string): boolean => /^[\x21-\x7e]{1,255}$/.test(word);

/** Reads resolv.conf back; what is not understood, such as a server with a zone, is left out. */
export function parseResolver(text: string): GuestDns {
  const servers: string[] = [];
  let search: readonly string[] = [];
  const options: string[] = [];
  for (const line of text.split("\n")) {
    const [keyword, ...words] = line.trim().split(/\s+/);
    if (keyword === "nameserver") servers.push(...words.slice(0, 1));
    // The last line of its kind counts.
    else if (keyword === "search" || keyword === "domain") search = words;
    else if (keyword === "options") options.push(...words);
  }
  return {
    servers: servers.filter(isIp).map((server) => parseIp(server)),
    search: search.filter(isWord),
    options: options.filter(isWord),
  };
}
