import { type DomainName, type DomainPattern, matchesDomain } from "./domain.ts";

/**
 * Names of public servers that answer DNS over HTTPS, as the operators publish them and curl's list
 * has them (github.com/curl/curl/wiki/DNS-over-HTTPS). Whoever asks one learns addresses that the
 * policy never saw, and can send anything out in a question.
 */
const servers = [
  "1dot1dot1dot1.cloudflare-dns.com",
  "chrome.cloudflare-dns.com",
  "cloudflare-dns.com",
  "dns.adguard-dns.com",
  "dns.adguard.com",
  "dns.alidns.com",
  "dns.controld.com",
  "dns.google",
  "dns.mullvad.net",
  "dns.nextdns.io",
  "dns.quad9.net",
  "dns.sb",
  "dns0.eu",
  "dns10.quad9.net",
  "dns11.quad9.net",
  "dns64.dns.google",
  "dns9.quad9.net",
  "doh.applied-privacy.net",
  "doh.cleanbrowsing.org",
  "doh.cox.net",
  "doh.dns.sb",
  "doh.familyshield.opendns.com",
  "doh.libredns.gr",
  "doh.opendns.com",
  "doh.pub",
  "doh.xfinity.com",
  "family.adguard-dns.com",
  "family.cloudflare-dns.com",
  "freedns.controld.com",
  "mozilla.cloudflare-dns.com",
  "one.one.one.one",
  "ordns.he.net",
  "security.cloudflare-dns.com",
  "unfiltered.adguard-dns.com",
  "wikimedia-dns.org",
] as const;
/** Names below these are each one customer's server. */
const below = ["cloudflare-gateway.com", "dns.nextdns.io"] as const;
/** Firefox leaves DNS over HTTPS off where this name has no address. */
const canary = "use-application-dns.net";

const known: readonly DomainPattern[] = [
  ...[...servers, canary].map((name) => ({ name: name as DomainName, below: false })),
  ...below.map((name) => ({ name: name as DomainName, below: true })),
];

/** Whether a name is that of a known server of DNS over HTTPS, or asks whether one may be used. */
export const isEncryptedDns = (name: DomainName): boolean =>
  known.some((pattern) => matchesDomain(pattern, name));
