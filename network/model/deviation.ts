import { assertNever } from "../../core/brand.ts";
import type { IfName } from "../../core/names.ts";
import { bucketText } from "./rates.ts";
import {
  type Change,
  commitName,
  type LinkSettings,
  onOff,
  type PortSettings,
  settingsText,
} from "./change.ts";
import { elementText } from "./nftables-sets.ts";
import type { ObservedAddress, ObservedLink } from "./observed.ts";
import { mainTableName } from "./rules.ts";

/** One thing that is not as planned, for people. */
export interface Deviation {
  /** The subject: `link hyper0 mtu`, `iptables-nft nat`. */
  readonly subject: string;
  readonly found: string;
  readonly wanted: string;
}

/** The observed host of a comparison, as far as texts about findings need it. */
export interface Sight {
  readonly links: readonly ObservedLink[];
  readonly addresses: readonly ObservedAddress[];
}

/** Changes whose texts say what was found of a link or its addresses. */
const ofLinks: ReadonlySet<Change["kind"]> = new Set([
  "set-link",
  "set-adopted",
  "add-address",
  "attach-port",
  "set-port",
]);

/** Whether the text of this change names anything of a `Sight`. */
export const needsSight = ({ kind }: Change): boolean => ofLinks.has(kind);

/** The text for a missing object. */
export const absent = "absent";

/** In one line. Pure. */
export const deviationText = ({ subject, found, wanted }: Deviation): string =>
  `${subject} is ${found}, should be ${wanted}`;

/** The deviations that a change would repair: found and wanted values. Pure. */
export function deviations(change: Change, sight: Sight): Deviation[] {
  const link = (name: IfName): ObservedLink | undefined =>
    sight.links.find((each) => each.name === name);
  switch (change.kind) {
    case "create-bridge": {
      const { name, mac, mtu, alias } = change;
      const wanted = `bridge ${settingsText({ mac, mtu, alias })}`;
      // Its settings are made with it, so their absence is not reported separately.
      return [{ subject: `link ${name}`, found: absent, wanted }];
    }
    case "set-link":
      return settingDeviations(change.name, change.set, link(change.name));
    case "set-adopted":
      return settingDeviations(change.name, { up: change.up }, link(change.name));
    case "pin-mac":
      return [
        { subject: `link ${change.name} mac`, found: "follows its ports", wanted: change.mac },
      ];
    case "add-address": {
      const { link: name, prefix } = change;
      const index = link(name)?.index;
      const held = sight.addresses.filter((each) => each.link === index).map((each) => each.prefix);
      const found = index === undefined || held.length === 0 ? absent : held.join(", ");
      return [{ subject: `address of ${name}`, found, wanted: prefix }];
    }
    case "remove-address":
      return [{ subject: `address of ${change.link}`, found: change.prefix, wanted: absent }];
    case "attach-port": {
      const { master = 0 } = link(change.link) ?? {};
      const found = sight.links.find((each) => each.index === master)?.name ?? "on no bridge";
      return [{ subject: `port ${change.link}`, found, wanted: change.bridge }];
    }
    case "set-port":
      return portDeviations(change.link, change.set, link(change.link));
    case "detach-port":
      return [{ subject: `port ${change.link}`, found: "a port", wanted: "none" }];
    case "create-ifb":
      return [{ subject: `link ${change.name}`, found: absent, wanted: "there" }];
    case "set-rate": {
      const { link: name, place, bucket, found } = change;
      const wanted = bucket === undefined ? absent : bucketText(bucket);
      return [{ subject: `${place === "root" ? "rate" : "inner rate"} of ${name}`, found, wanted }];
    }
    case "redirect": {
      const { from, to } = change;
      const wanted = to === undefined ? "by itself" : `by ${to}`;
      return [{ subject: `way out by ${from}`, found: "otherwise", wanted }];
    }
    case "delete-links":
      return change.links.map((name) => ({
        subject: `link ${name}`,
        found: "there",
        wanted: absent,
      }));
    case "set-sysctl":
      return [{ subject: `sysctl ${change.key}`, found: change.from, wanted: change.to }];
    case "iptables": {
      const subject = commitName(change);
      return change.lines.map((line) => ruleDeviation(subject, line));
    }
    case "nftables": {
      const { base, add, remove, fill = [], table = mainTableName } = change;
      const subject = `nftables ${table}`;
      const rules = {
        subject,
        found: "not as planned",
        wanted: "sets, chains and rules of podnet",
      };
      return [
        ...(base === "keep"
          ? []
          : [base === "delete" ? { subject, found: "there", wanted: absent } : rules]),
        ...fill.map((chain) => ({
          subject: `${subject} chain ${chain.name}`,
          found: "not as planned",
          wanted: `${chain.rules.length} rules`,
        })),
        ...remove.map((each) => ({
          subject: `${subject} ${each.set}`,
          found: elementText(each),
          wanted: absent,
        })),
        ...add.map((each) => ({
          subject: `${subject} ${each.set}`,
          found: absent,
          wanted: elementText(each),
        })),
      ];
    }
    case "forget-neighbour":
    case "end-bridge-filter":
      // A part of another change; not a deviation by itself.
      return [];
    default:
      return assertNever(change);
  }
}

const subjects: Readonly<Partial<Record<keyof LinkSettings, string>>> = {
  up: "state",
  vlanFiltering: "vlan_filtering",
  fdbMaxLearned: "fdb_max_learned",
  noLinkLocalLearn: "no_linklocal_learn",
  nfCall: "nf_call",
};

function portDeviations(
  name: IfName,
  set: PortSettings,
  found: ObservedLink | undefined,
): Deviation[] {
  // Which VLANs a port is in is not among what links report themselves.
  const others = found?.vlan === undefined ? "others" : `${found.vlan}`;
  return Object.entries<number | boolean>(set as Record<string, number | boolean>).map(
    ([setting, wanted]) => ({
      subject: `port ${name} ${setting}`,
      found: typeof wanted === "number" ? others : onOff(!wanted),
      wanted: onOff(wanted),
    }),
  );
}

function settingDeviations(
  name: IfName,
  set: LinkSettings,
  found: ObservedLink | undefined,
): Deviation[] {
  const say = (value: string | number | boolean | undefined): string => {
    if (value === undefined) return absent;
    return typeof value === "boolean" ? (value ? "up" : "down") : String(value);
  };
  return (Object.keys(set) as (keyof LinkSettings)[]).map((setting) => ({
    subject: `link ${name} ${subjects[setting] ?? setting}`,
    found: say(found?.[setting]),
    wanted: say(set[setting]),
  }));
}

/**
 * A line of iptables-restore: what it deletes is there and should not be, what it adds the other
 * way round.
 */
function ruleDeviation(subject: string, line: string): Deviation {
  const goes = /^-[DX] /.test(line);
  return goes
    ? { subject, found: line.replace(/^-D/, "-A").replace(/^-X/, "chain"), wanted: absent }
    : { subject, found: absent, wanted: line };
}
