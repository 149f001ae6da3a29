import { createHash } from "node:crypto";
import type { SetName } from "../../model/nftables-sets.ts";
import { entriesOf, objectOf, textOf } from "./listing.ts";

/** Which end of a flow a list of decisions names: of egress the destination, else the source. */
export type Direction = "egress" | "ingress";
export const directions: readonly Direction[] = ["egress", "ingress"];

/** The sets in which the kernel counts denials, by family. */
export const denialSets = ["denied4", "denied6"] as const satisfies readonly SetName[];

/** Packets of one pod that one rule has denied since the pod has had a policy. */
export interface Denied<Owner> {
  readonly owner: Owner;
  /** As `ruleNumber` gives it. */
  readonly rule: number;
  readonly packets: number;
  readonly bytes: number;
}

const digestOf = (text: string): number =>
  createHash("sha256").update(text).digest().readUInt32BE();

/**
 * The number by which the kernel knows a rule of a policy, in 31 bits and never 0: pods that share
 * a chain share its numbers, and a rule keeps its number when others come and go. Pure.
 */
export const ruleNumber = (direction: Direction, policy: string, rule: string): number =>
  digestOf(JSON.stringify([direction, policy, rule])) >>> 1 || 1;

/**
 * The number by which the kernel knows a pod that has policies, as nft writes a class: a pod that
 * gets an address later does not inherit what was counted by it. Pure.
 */
export function holderNumber(owner: string): string {
  const digest = digestOf(owner);
  // The first bits are 01, for some classes are written as words; and no second part is empty.
  const parts = [0x4000 + (digest >>> 18), digest & 0xffff || 1];
  return parts.map((part) => part.toString(16)).join(":");
}

export const deniedChain = (direction: Direction): string => `denied_${direction}`;

/** The group that denials are logged to, as all that is podnet's has this number. */
export const denialGroup = 73;
/** The words by which podnet finds its own records there. */
export const logPrefix = (direction: Direction): string => `podnet ${direction}`;

/**
 * The rules that answer what a rule of a policy denies, whose number is the packet's mark: they
 * count it by pod and rule, and answer at once, for a connection that hangs does not say why. A
 * denied packet goes no further, so what is written to it is seen by none but these rules; an
 * answer must not take its mark over (`fwmark_reflect`).
 *
 * Whoever reads the log, if the kernel has one, gets ten packets a second of each pod at most, half
 * of them by one rule: no pod fills it for another one.
 */
export const deniedRules = (direction: Direction, logs: boolean): readonly string[] => {
  const [link, side] = direction === "egress" ? ["iifname", "saddr"] : ["oifname", "daddr"];
  const families = [
    ["4", "ip"],
    ["6", "ip6"],
  ] as const;
  return [
    ...families.map(([n, ip]) => `meta priority set ${link} . ${ip} ${side} map @holder${n}`),
    ...families.map(([n, ip]) => {
      const key = `${ip} ${side} . meta priority . meta mark`;
      if (!logs) return `update @denied${n} { ${key} counter }`;
      return [
        `update @denied${n} { ${key} counter limit rate 5/second burst 10 packets }`,
        "update @reported { meta priority limit rate 10/second burst 20 packets }",
        `log group ${denialGroup} snaplen 128 prefix "${logPrefix(direction)}"`,
      ].join(" ");
    }),
    "meta mark set 0",
    "meta l4proto tcp reject with tcp reset",
    "reject with icmpx admin-prohibited",
  ];
};

/** As the kernel counts: by the numbers of pod and rule, with the key as nft takes it. */
export interface ListedDenial extends Omit<Denied<string>, "owner"> {
  readonly holder: string;
  readonly key: string;
}

/**
 * Parses the JSON that libnftables prints for a set of denials. Throws `FIREWALL_FAILED`.
 */
export const parseDenials = (text: string): ListedDenial[] =>
  entriesOf(text).flatMap((entry) => {
    const { elem } = objectOf(entry["set"]) ?? {};
    return (Array.isArray(elem) ? elem : []).flatMap((each): ListedDenial[] => {
      const element = objectOf(objectOf(each)?.["elem"]);
      const words = objectOf(element?.["val"])?.["concat"];
      const counter = objectOf(element?.["counter"]);
      if (!Array.isArray(words) || counter === undefined) return [];
      const [address = "", holder = "", rule = ""] = words.map(textOf);
      const [packets, bytes] = [Number(counter["packets"]), Number(counter["bytes"])];
      const key = `${address} . ${holder} . ${rule}`;
      return [{ holder, rule: Number(rule), key, packets, bytes }];
    });
  });

/**
 * The denials of pods that are there, by rule and of all their addresses together; and the keys of
 * others. Pure.
 */
export function placeDenials<Owner>(
  listed: readonly ListedDenial[],
  holders: ReadonlyMap<string, Owner>,
): { readonly denied: readonly Denied<Owner>[]; readonly stale: readonly string[] } {
  const stale: string[] = [];
  const found = new Map<string, Denied<Owner>>();
  for (const { holder, rule, key, packets, bytes } of listed) {
    const owner = holders.get(holder);
    if (owner === undefined) stale.push(key);
    else
      found.set(
        `${holder} ${rule}`,
        sum({ owner, rule, packets, bytes }, found.get(`${holder} ${rule}`)),
      );
  }
  return { denied: [...found.values()], stale };
}

const sum = <Owner>(one: Denied<Owner>, other: Denied<Owner> | undefined): Denied<Owner> =>
  other === undefined
    ? one
    : { ...one, packets: one.packets + other.packets, bytes: one.bytes + other.bytes };
