import { type Ip, isLoopback, parseIp } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { DnsSpec } from "../pod-spec.ts";
import { checkUnicast } from "./unicast.ts";
import { checkCount, invalid } from "../fields.ts";

/**
 * resolv.conf(5): MAXNS is 3; MAXDNSRCH was 6 with 256 characters before glibc 2.26, musl keeps
 * 256.
 */
const most = { servers: 3, search: 6, searchLength: 256, options: 8 } as const;

const domain =
  /^(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.?$/i;
const option = /^[a-z0-9-]{1,24}(?::[0-9]{1,4})?$/;

/** Checks what goes into a guest's resolv.conf. */
export function validateDns(dns: wire.Dns): DnsSpec {
  const servers = validateServers(dns.servers, "dns.servers");
  const search = validateSearch(dns.search, "dns.search");
  checkCount(dns.options, most.options, "dns.options");
  dns.options.forEach((text, i) => {
    if (option.test(text)) return;
    throw invalid(
      `dns.options[${i}]`,
      `"${printable(text)}" is not an option of resolv.conf`,
      "Write one such as ndots:2, see resolv.conf(5)",
    );
  });
  return { servers, search, options: [...dns.options] };
}

/** Checks name servers that guests are to ask. */
export function validateServers(texts: readonly string[], list: string): Ip[] {
  checkCount(texts, most.servers, list);
  return texts.map((text, i) => {
    const field = `${list}[${i}]`;
    const ip = parseIp(text, field);
    if (isLoopback(ip)) {
      throw new PodnetError("ADDRESS_INVALID", `${ip} is the guest itself, where no server runs`, {
        field,
        hint: "Give a server that the pod reaches over the network",
      });
    }
    checkUnicast(ip, field);
    return ip;
  });
}

/** Checks search domains. */
export function validateSearch(domains: readonly string[], list: string): string[] {
  checkCount(domains, most.search, list);
  domains.forEach((text, i) => {
    if (text.length <= 253 && domain.test(text)) return;
    throw invalid(
      `${list}[${i}]`,
      `"${printable(text)}" is not a domain`,
      "Write a domain such as example.org",
    );
  });
  if (domains.join(" ").length > most.searchLength) {
    throw invalid(
      list,
      "The search list is too long",
      `Use at most ${most.searchLength} characters in all`,
    );
  }
  return [...domains];
}
