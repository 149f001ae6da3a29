import type { Cidr, Ip, IpPrefix, Mac } from "../../../core/address.ts";
import { assertNever } from "../../../core/brand.ts";
import type { Random } from "../random.ts";

/**
 * What is done to a kernel for containers, in names. The container's namespace is one and the same.
 */
export type AttachmentOperation =
  | {
      readonly kind: "pair";
      readonly name: string;
      readonly group?: number;
      readonly mtu?: number;
      readonly peer: string;
      readonly peerMac?: Mac;
      readonly peerMtu?: number;
    }
  | {
      readonly kind: "ifb";
      readonly name: string;
      readonly mtu?: number;
      readonly group?: number;
      readonly up?: boolean;
    }
  | {
      readonly kind: "rate";
      readonly link: string;
      readonly rate: number;
      readonly burst: number;
      readonly limit: number;
    }
  | { readonly kind: "ingress"; readonly link: string }
  | { readonly kind: "redirect"; readonly link: string; readonly to: string }
  | { readonly kind: "clear-filters"; readonly link: string }
  | {
      readonly kind: "inside-change";
      readonly link: string;
      readonly set: { readonly up?: boolean; readonly mtu?: number; readonly mac?: Mac };
    }
  | { readonly kind: "inside-address"; readonly link: string; readonly prefix: IpPrefix }
  | {
      readonly kind: "inside-route" | "inside-route-gone";
      readonly link: string;
      readonly destination: Cidr;
      readonly gateway?: Ip;
      readonly onlink?: boolean;
    }
  | { readonly kind: "defer"; readonly links: readonly string[]; readonly group: number }
  | { readonly kind: "namespace-ends" };

const pairs = ["pc0", "pc1"];
const hostLinks = ["pc0", "pc0", "pc1", "pi0", "br0", "nosuch"];
export const insideLinks = ["eth0", "eth1"];
const macs = ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"] as Mac[];
const mtus = [1280, 1400, 1500, 9000];
const prefixes = ["10.1.0.9/24", "10.1.0.8/24", "10.3.0.1/32", "fd00:1::9/64"] as IpPrefix[];
/** Reached by the first of these addresses, by none, and by that of IPv6. */
const routes = [
  { destination: "0.0.0.0/0", gateway: "10.1.0.1" },
  { destination: "0.0.0.0/0", gateway: "10.9.0.1" },
  { destination: "0.0.0.0/0", gateway: "10.9.0.1", onlink: true },
  { destination: "10.7.0.0/16", gateway: "10.1.0.1" },
  { destination: "10.8.0.0/16" },
  { destination: "::/0", gateway: "fd00:1::1" },
] as { destination: Cidr; gateway?: Ip; onlink?: boolean }[];
/** Bytes a second; the last is beyond what 32 bits hold. */
export const rates = [1_250_000, 12_500_000, 5_000_000_000];
export const bursts = [3000, 125_000, 1_000_000];

/** A container that has its network, and a rate on its way out: what most that follows is about. */
export const attached: readonly AttachmentOperation[] = [
  { kind: "pair", name: "pc0", group: 73, peer: "eth0", peerMac: "02:00:00:00:00:01" as Mac },
  { kind: "inside-address", link: "eth0", prefix: "10.1.0.9/24" as IpPrefix },
  { kind: "inside-address", link: "eth0", prefix: "fd00:1::9/64" as IpPrefix },
  { kind: "inside-change", link: "eth0", set: { up: true } },
  {
    kind: "inside-route",
    link: "eth0",
    destination: "0.0.0.0/0" as Cidr,
    gateway: "10.1.0.1" as Ip,
  },
  { kind: "ifb", name: "pi0", group: 73, up: true },
  { kind: "ingress", link: "pc0" },
  { kind: "redirect", link: "pc0", to: "pi0" },
];

/** About half of which make sense, and most are about the same pair. */
export function drawAttachment(random: Random): AttachmentOperation {
  const kind = random.weighted<AttachmentOperation["kind"]>({
    pair: 6,
    ifb: 2,
    rate: 2.5,
    ingress: 2,
    redirect: 2.5,
    "clear-filters": 0.7,
    "inside-change": 4,
    "inside-address": 4,
    "inside-route": 4,
    "inside-route-gone": 1,
    defer: 1.5,
    "namespace-ends": 0.2,
  });
  const link = random.pick(hostLinks);
  const inside = random.chance(0.7) ? "eth0" : random.pick([...insideLinks, "nosuch"]);
  const maybe = <T>(value: T, likely: number): T | undefined =>
    random.chance(likely) ? value : undefined;
  switch (kind) {
    case "pair":
      return defined({
        kind,
        name: random.pick(pairs),
        group: maybe(73, 0.6),
        mtu: maybe(random.pick(mtus), 0.6),
        peer: random.pick(insideLinks),
        peerMac: maybe(random.pick(macs), 0.8),
        peerMtu: maybe(random.pick(mtus), 0.6),
      });
    case "ifb":
      return defined({
        kind,
        name: random.pick(["pi0", "pi0", "pc0"]),
        mtu: maybe(random.pick(mtus), 0.5),
        group: maybe(73, 0.5),
        up: maybe(true, 0.5),
      });
    case "rate":
      return {
        kind,
        link,
        rate: random.pick(rates),
        burst: random.pick(bursts),
        limit: 65_536,
      };
    case "ingress":
    case "clear-filters":
      return { kind, link };
    case "redirect":
      return { kind, link, to: random.chance(0.8) ? "pi0" : random.pick(hostLinks) };
    case "inside-change": {
      const set = random.weighted({ up: 5, mtu: 2, mac: 1 });
      const link = random.chance(0.8) ? inside : "lo";
      if (set === "up" || link === "lo") return { kind, link, set: { up: random.chance(0.75) } };
      if (set === "mtu") return { kind, link, set: { mtu: random.pick(mtus) } };
      return { kind, link, set: { mac: random.pick(macs) } };
    }
    case "inside-address":
      return { kind, link: inside, prefix: random.pick(prefixes) };
    case "inside-route":
    case "inside-route-gone":
      return { kind, link: inside, ...random.pick(routes) };
    case "defer":
      return { kind, links: [random.pick(hostLinks), random.pick(hostLinks)], group: 74 };
    case "namespace-ends":
      return { kind };
    default:
      return assertNever(kind);
  }
}

type Optional<T> = T extends object
  ? { [K in keyof T]: undefined extends T[K] ? T[K] | undefined : T[K] }
  : T;

/** The object without members that are undefined. */
const defined = (operation: Optional<AttachmentOperation>): AttachmentOperation =>
  Object.fromEntries(
    Object.entries(operation).filter(([, value]) => value !== undefined),
  ) as AttachmentOperation;
