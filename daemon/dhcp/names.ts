import { encodeUtf8 } from "../../core/utf8.ts";

/**
 * Domains as DNS writes them, uncompressed (RFC 1035 section 3.1): how DHCP and router
 * advertisements carry a search list.
 */
export function domainBytes(domains: readonly string[]): Uint8Array {
  return Buffer.concat(
    domains.map((domain) => {
      const labels = domain
        .split(".")
        .filter((label) => label !== "")
        .map(encodeUtf8);
      return Buffer.concat([
        ...labels.map((label) => Buffer.from([label.length, ...label])),
        Uint8Array.of(0),
      ]);
    }),
  );
}
