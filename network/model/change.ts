import type { Family, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import type { QueuePlace, TokenBucket } from "../../linux/rtnetlink/qdisc.ts";
import type { IptablesEdit, NftablesEdit, Variant } from "./rules.ts";

/** The settings of a link to change; absent members stay as they are. */
export interface LinkSettings {
  readonly alias?: string;
  readonly group?: number;
  readonly mtu?: number;
  readonly mac?: Mac;
  readonly up?: boolean;
  /** Of a bridge. */
  readonly vlanFiltering?: boolean;
  /** Of a bridge: how many addresses it learns at most. */
  readonly fdbMaxLearned?: number;
  /** Of a bridge: it learns nothing from frames that bridges do not forward. */
  readonly noLinkLocalLearn?: boolean;
  /** Of a bridge: frames between its ports pass the host's rules, of both families. */
  readonly nfCall?: boolean;
}

/** The settings of a port to change; absent members stay as they are. */
export interface PortSettings {
  readonly isolated?: boolean;
  /** Whether frames may leave by the port they came in by. */
  readonly hairpin?: boolean;
  readonly learning?: boolean;
  /** Untagged member of this VLAN alone. */
  readonly vlan?: number;
}

/** A key below /proc/sys and its value. */
export interface Setting {
  readonly key: string;
  readonly value: string;
}

/** One effect on the kernel, as data. An array of them is in the order they are applied. */
export type Change =
  | {
      readonly kind: "create-bridge";
      readonly name: IfName;
      readonly mac: Mac;
      readonly mtu: number;
      readonly alias: string;
      /** Set right after its birth, before it is up. */
      readonly settings: readonly Setting[];
    }
  | { readonly kind: "set-link"; readonly name: IfName; readonly set: LinkSettings }
  /**
   * Frames between the ports of a bridge of ours pass the host's rules no more, unless the host is
   * set so. Absence is success.
   */
  | { readonly kind: "end-bridge-filter"; readonly name: IfName }
  /** Brings up a foreign bridge that we adopt, or takes it down again. */
  | { readonly kind: "set-adopted"; readonly name: IfName; readonly up: boolean }
  /**
   * Makes a foreign bridge keep its present MAC. No visible property changes, so nothing is
   * reverted.
   */
  | { readonly kind: "pin-mac"; readonly name: IfName; readonly mac: Mac }
  | { readonly kind: "add-address"; readonly link: IfName; readonly prefix: IpPrefix }
  /** Absent is success. */
  | { readonly kind: "remove-address"; readonly link: IfName; readonly prefix: IpPrefix }
  /**
   * Makes a tap (or any link) a port. It is set up last; if it should be isolated, it is by then.
   */
  | {
      readonly kind: "attach-port";
      readonly link: IfName;
      readonly bridge: IfName;
      /** Index of the bridge, as it was seen when the two were compared. */
      readonly master: number;
      readonly isolated: boolean;
      readonly learning?: boolean;
      readonly vlan?: number;
    }
  | { readonly kind: "set-port"; readonly link: IfName; readonly set: PortSettings }
  /** Cuts a port's traffic. */
  | { readonly kind: "detach-port"; readonly link: IfName }
  /** The host's neighbour entry for an address's former holder; absence is success. */
  | {
      readonly kind: "forget-neighbour";
      readonly link: IfName;
      readonly ip: Ip;
      /** The link's index, if the caller has just looked it up. */
      readonly index?: number;
    }
  /** Makes the link that limits what a guest sends; it is up. */
  | {
      readonly kind: "create-ifb";
      readonly name: IfName;
      readonly mtu: number;
      readonly alias: string;
    }
  /** Limits what leaves by a link; without a bucket it is limited no more. */
  | {
      readonly kind: "set-rate";
      readonly link: IfName;
      readonly place: QueuePlace;
      readonly bucket?: TokenBucket;
      /** The bucket that it has, for people. */
      readonly found: string;
    }
  /** Sends what comes in by a link out by another; without another it goes its way. */
  | { readonly kind: "redirect"; readonly from: IfName; readonly to?: IfName }
  /** Ends links, all with one message when they are several. */
  | { readonly kind: "delete-links"; readonly links: readonly IfName[] }
  | {
      readonly kind: "set-sysctl";
      readonly key: string;
      readonly from: string;
      readonly to: string;
    }
  | ({
      readonly kind: "iptables";
      readonly family: Family;
      readonly variant: Variant;
      /** Our chain's name, for the records. */
      readonly chain: string;
    } & IptablesEdit)
  | ({ readonly kind: "nftables" } & NftablesEdit);

export type ChangeKind = Change["kind"];
export type ChangeOf<Kind extends ChangeKind> = Extract<Change, { readonly kind: Kind }>;

/** The name of a commit of rules: `iptables-nft filter`. */
export const commitName = ({ family, variant, table }: ChangeOf<"iptables">): string =>
  `${family === 4 ? "iptables" : "ip6tables"}-${variant} ${table}`;

/** Settings in one order, whatever order they were given in. */
export function settingsText(set: LinkSettings): string {
  const words = [
    set.mac === undefined ? [] : ["mac", set.mac],
    set.mtu === undefined ? [] : ["mtu", `${set.mtu}`],
    set.group === undefined ? [] : ["group", `${set.group}`],
    set.alias === undefined ? [] : ["alias", set.alias],
    set.fdbMaxLearned === undefined ? [] : ["fdb_max_learned", `${set.fdbMaxLearned}`],
    set.noLinkLocalLearn === undefined
      ? []
      : ["no_linklocal_learn", set.noLinkLocalLearn ? "on" : "off"],
    set.vlanFiltering === undefined ? [] : ["vlan_filtering", set.vlanFiltering ? "on" : "off"],
    set.nfCall === undefined ? [] : ["nf_call", set.nfCall ? "on" : "off"],
    set.up === undefined ? [] : [set.up ? "up" : "down"],
  ];
  return words.flat().join(" ");
}

export const onOff = (value: number | boolean): string =>
  typeof value === "number" ? `${value}` : value ? "on" : "off";

/** A port's settings that are not as ports are born. */
export function portText({ isolated, learning, vlan }: PortSettings): string {
  return [
    isolated === true ? " isolated" : "",
    learning === false ? " without learning" : "",
    vlan === undefined ? "" : ` in vlan ${vlan}`,
  ].join("");
}
