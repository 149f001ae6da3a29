import type { Family } from "../../core/address.ts";
import type { Setting } from "../model/change.ts";
import { ipv6ForwardKey } from "./diff-network.ts";
import type { HostNetlink, HostSysctl } from "../kernel/kernel.ts";
import type { Memory } from "../kernel/memory.ts";
import { readOptional, writeOptional } from "./observe.ts";
import { parseOwner } from "../model/ownership.ts";

interface Forwarding {
  readonly netlink: Pick<HostNetlink, "links">;
  readonly sysctl: HostSysctl;
  readonly memory: Memory;
}

/**
 * Switches forwarding on, after recording the host's settings; or restores the recorded settings,
 * including all that the kernel or podnet changed together with forwarding.
 */
export async function setForwarding(
  { key, from, to }: { readonly key: string; readonly from: string; readonly to: string },
  { netlink, sysctl, memory }: Forwarding,
): Promise<void> {
  const family: Family = key === ipv6ForwardKey ? 6 : 4;
  if (to !== "1") {
    sysctl.write(key, to);
    for (const alongside of memory.alongForward(family))
      writeOptional(sysctl, alongside.key, alongside.value);
    memory.forgetForward(family);
    return;
  }
  const links = await netlink.links();
  const others = links.filter(({ alias }) => parseOwner(alias) === undefined);
  const alongside =
    family === 4
      ? alongsideIpv4(sysctl, names(links))
      : [...alongsideIpv6(sysctl, names(links)), ...acceptRa(sysctl, names(others))];
  memory.rememberForward(family, from, alongside);
  // Set before forwarding: switching it on makes the kernel drop the default routes that
  // advertisements gave, except for links that keep listening while they forward
  // (rt6_purge_dflt_routers, Linux 6.1).
  for (const { key: each } of memory.alongForward(family))
    if (each.endsWith("/accept_ra") && readOptional(sysctl, each) === "1") sysctl.write(each, "2");
  sysctl.write(key, to);
}

const names = (links: readonly { readonly name: string }[]): string[] =>
  links.map(({ name }) => name);

function kept(sysctl: HostSysctl, key: string, value: string): Setting[] {
  return readOptional(sysctl, key) === value ? [{ key, value }] : [];
}

/**
 * The settings that are lost when ip_forward is set to 1 and back to 0: the kernel sets every
 * link's forwarding too, and inverts conf.all.accept_redirects (inet_forward_change, Linux 6.1).
 */
const alongsideIpv4 = (sysctl: HostSysctl, links: readonly string[]): Setting[] => [
  ...["default", ...links].flatMap((name) => kept(sysctl, `net/ipv4/conf/${name}/forwarding`, "1")),
  ...kept(sysctl, "net/ipv4/conf/all/accept_redirects", "0"),
];

/** Settings of IPv6 (addrconf_forward_change). */
const alongsideIpv6 = (sysctl: HostSysctl, links: readonly string[]): Setting[] =>
  ["default", ...links].flatMap((name) => kept(sysctl, `net/ipv6/conf/${name}/forwarding`, "1"));

/**
 * Links by which the host may have its own default route: with 1 they listen to advertisements
 * while they do not forward, with 2 they do in any case. Put back last: forwarding of a single link
 * makes the kernel forget, too.
 */
const acceptRa = (sysctl: HostSysctl, links: readonly string[]): Setting[] =>
  links
    .filter((name) => readOptional(sysctl, `net/ipv6/conf/${name}/forwarding`) === "0")
    .flatMap((name) => kept(sysctl, `net/ipv6/conf/${name}/accept_ra`, "1"));
