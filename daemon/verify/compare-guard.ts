import { familyOf, type Ip, ipOf, type Mac } from "../../core/address.ts";
import type { PluggedFragment, PortDesired } from "../../network/model/desired.ts";
import { type Check, checker } from "./check.ts";
import type { GuardReport } from "./source-reports.ts";

/** What is to decide about a pod's packets. */
export interface Filters {
  /** Its part of the host. */
  readonly pod: PluggedFragment;
  /** A policy decides about its flows. */
  readonly policed: boolean;
}

/** What the guard and policies have of a pod, next to what a source has read. Pure. */
export function compareGuard({ pod, policed }: Filters, report: GuardReport): Check[] {
  const check = checker("nft");
  const { ports, sources = [] } = pod;
  if (ports.length === 0) return [];
  return [
    check("guard asks for the MAC of frames", true, report.asked),
    ...ports.flatMap((port) => [
      ...compareElements(
        port,
        sources.filter(({ tap }) => tap === port.tap).map(({ address }) => address),
        report,
      ),
      ...port.guestAddresses.flatMap((prefix) =>
        comparePolicy(port.bridge, ipOf(prefix), policed, report),
      ),
    ]),
  ];
}

function compareElements(
  port: PortDesired,
  sources: readonly Ip[],
  { ports }: GuardReport,
): Check[] {
  const check = checker("nft");
  const { tap, guestMac, otherMacs = [], guestAddresses, otherAddresses = [] } = port;
  const found = ports.find(({ link }) => link === tap);
  const sets = check(`guard ${tap} lets choose`, text(lenience(port)), text(found?.sets ?? []));
  if (port.guard === "off") return [sets];
  const macs = [guestMac, ...otherMacs];
  const own = [...guestAddresses.map(ipOf), ...otherAddresses, ...sources];
  const hasSix = guestAddresses.some((prefix) => familyOf(prefix) === 6);
  return [
    check(`guard ${tap} sends with MAC`, text(macs), text(found?.macs ?? [])),
    check(
      `guard ${tap} sends from`,
      text([...own, ...(hasSix ? macs.map(linkLocal) : [])]),
      text(found?.addresses ?? []),
    ),
    check(
      `guard ${tap} sends at once as`,
      text(
        macs.flatMap((mac) => own.flatMap((ip) => (familyOf(ip) === 4 ? [`${mac}/${ip}`] : []))),
      ),
      text(found?.senders ?? []),
    ),
    sets,
  ];
}

const text = (words: readonly string[]): string => [...new Set(words)].sort().join(" ");

/** On a foreign bridge others may give addresses, too. */
function lenience({ guard, foreign, guestAddresses, macMayChange }: PortDesired): string[] {
  if (guard === "off") return ["unguarded"];
  const has = (family: 4 | 6): boolean =>
    guestAddresses.some((prefix) => familyOf(prefix) === family);
  return [
    ...(foreign === true ? [...(has(4) ? [] : ["any4"]), "any6"] : []),
    ...(guard === "own-link-local" && has(6) ? ["choosing"] : []),
    ...(macMayChange === true ? ["changing"] : []),
  ];
}

/** RFC 4291, appendix A. */
function linkLocal(mac: Mac): string {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = mac
    .split(":")
    .map((byte) => Number.parseInt(byte, 16));
  const groups = [((a ^ 2) << 8) | b, (c << 8) | 0xff, 0xfe00 | d, (e << 8) | f];
  const written = groups.map((group) => group.toString(16)).join(":");
  return new URL(`http://[fe80::${written}]/`).hostname.slice(1, -1);
}

function comparePolicy(
  bridge: string,
  address: Ip,
  policed: boolean,
  { directions, holders }: GuardReport,
): Check[] {
  const check = checker("nft");
  return ["egress", "ingress"].map((way) => {
    const direction = `${way}${familyOf(address)}`;
    const holder = holders.find(
      (each) => each.direction === direction && each.bridge === bridge && each.address === address,
    );
    const asked = holder !== undefined && holder.rules > 0 && directions.includes(direction);
    // What is left of a policy is a difference as well.
    const found = policed ? asked : holder !== undefined;
    return check(`${way} of ${address} on ${bridge} asks a policy`, policed, found);
  });
}
