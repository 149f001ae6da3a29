import { familyOf } from "../../core/address.ts";
import type { LinkAddress } from "../../linux/rtnetlink/address.ts";
import type { Deviation } from "../model/deviation.ts";
import type { HostSysctl } from "../kernel/kernel.ts";
import { readOptional, writeOptional } from "../bridge/observe.ts";
import type { AttachmentFragment, InsidePart } from "./desired.ts";

/** A setting inside that is not as it should be. */
export interface SettingStep {
  readonly deviation: Deviation;
  readonly key: string;
  readonly value: string;
  readonly part: InsidePart;
}

/**
 * The origin of an address, by `LinkAddress.protocol`: the kernel, after a router advertisement.
 */
const byRouter = 2;

/**
 * The settings that keep a container to the addresses it was given: it accepts no router
 * advertisements, which any neighbour can send, and a link that was given no IPv6 address has no
 * IPv6 at all, not even link-local. Read only.
 *
 * Later plugins may change these settings. Once another program gave the link an IPv6 address,
 * podnet leaves its IPv6 alone. An `accept_ra` of 2, which is no kernel's default, stays too.
 */
export function planSettings(
  { guestLink, addresses }: Pick<AttachmentFragment, "guestLink" | "addresses">,
  sysctl: HostSysctl,
  held: readonly LinkAddress[],
  isNew: boolean,
): SettingStep[] {
  // A link of an earlier podnetd may have the name of one of the folders that apply to all links;
  // nothing is set for all links.
  if (guestLink === "all" || guestLink === "default") return [];
  if (held.some((address) => isOthers(address, addresses))) return [];
  const has6 = addresses.some((prefix) => familyOf(prefix) === 6);
  const wanted = { accept_ra: "0", autoconf: "0", disable_ipv6: has6 ? "0" : "1" };
  return Object.entries(wanted).flatMap(([setting, value]): SettingStep[] => {
    const key = `net/ipv6/conf/${guestLink}/${setting}`;
    // Set without a look where the link was just made: each look goes through the kernel's cache of
    // such names, which has one of each for every namespace.
    const found = isNew ? "as it was made" : readOptional(sysctl, key);
    if (found === undefined || found === value) return [];
    if (setting === "accept_ra" && found === "2") return [];
    const deviation = { subject: `sysctl ${key} inside`, found, wanted: value };
    return [{ deviation, key, value, part: `setting ${setting}` }];
  });
}

const isOthers = (
  { prefix, scope, permanent, protocol }: LinkAddress,
  ours: readonly string[],
): boolean =>
  familyOf(prefix) === 6 &&
  scope !== "link" &&
  permanent &&
  protocol !== byRouter &&
  !ours.includes(prefix);

/** Sets them. Throws `SYSCALL_FAILED`. */
export function applySettings(steps: readonly SettingStep[], sysctl: HostSysctl): void {
  for (const { key, value } of steps) writeOptional(sysctl, key, value);
}
