import { familyOf } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import { ruleKey } from "../../../network/firewall/iptables/rule.ts";
import { parseSave } from "../../../network/firewall/iptables/save-format.ts";
import { variants } from "../../../network/model/rules.ts";
import { observeAttaching } from "./attachment-observation.ts";
import { macs } from "./sequence.ts";
import type { Subject } from "./subject.ts";

/**
 * Everything both kernels can be compared by, a line a thing, in one order. Indexes become names.
 */
export async function observe(subject: Subject, firewall: boolean): Promise<string[]> {
  const links = await subject.netlink.links();
  const nameOf = (index: number | undefined): string =>
    links.find((link) => link.index === index)?.name ?? "-";
  const lines: string[] = [];
  for (const link of links) {
    const { name, kind, mac, mtu, up, group, alias, master, port } = link;
    // Both draw the address of a link that was given none.
    const known = mac === undefined || macs.includes(mac) || mac === "00:00:00:00:00:00";
    const words = [name, kind, known ? mac : "random", mtu, up, group, alias, nameOf(master)];
    lines.push(`link ${words.map(String).join(" ")} isolated=${port?.isolated === true}`);
    for (const setting of ["accept_ra", "addr_gen_mode", "disable_ipv6", "forwarding"])
      if (name !== "lo")
        lines.push(`sysctl ${name} ${setting} ${settingOf(subject, name, setting)}`);
  }
  for (const key of ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"])
    lines.push(`sysctl ${key} ${subject.sysctl.read(key)}`);
  for (const { index, prefix } of await subject.netlink.addresses())
    if (!/^(?:fe80:|127\.|::1)/.test(prefix)) lines.push(`address ${nameOf(index)} ${prefix}`);
  for (const { destination, link } of await subject.routes())
    lines.push(`route ${destination} ${nameOf(link)}`);
  for (const { index, ip, mac } of await subject.neighbours())
    if (familyOf(ip) === 4 || nameOf(index) !== "lo")
      lines.push(`neighbour ${nameOf(index)} ${ip} ${mac}`);
  lines.push(...(await observeAttaching(subject, links)));
  lines.sort();
  return firewall ? [...lines, ...(await rules(subject))] : lines;
}

function settingOf(subject: Subject, link: string, setting: string): string {
  try {
    return subject.sysctl.read(`net/ipv6/conf/${link}/${setting}`);
  } catch (thrown) {
    if (!isPodnetError(thrown)) throw thrown;
    return String(thrown.details["errno"]);
  }
}

/**
 * In the order of evaluation; built-in chains that hold nothing are left out, for they appear by
 * mere looking.
 */
async function rules(subject: Subject): Promise<string[]> {
  const lines: string[] = [];
  const signal = AbortSignal.timeout(20_000);
  for (const variant of variants) {
    const empty = variant === "legacy" && subject.iptables.legacyTables().trim() === "";
    const tables = parseSave(empty ? "" : await subject.iptables.save(variant, signal));
    for (const table of [...tables.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
      for (const [chain, policy] of [...table.chains].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
        const held = table.rules.filter((rule) => rule.chain === chain);
        if (policy === "-" || held.length > 0)
          lines.push(`${variant} ${table.name} :${chain} ${policy}`);
        lines.push(...held.map(({ args }) => `${variant} ${table.name} ${chain} ${ruleKey(args)}`));
      }
    }
  }
  return lines;
}
