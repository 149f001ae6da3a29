import type { Ip, IpPrefix, Mac } from "../../../core/address.ts";
import { assertNever } from "../../../core/brand.ts";
import type { Variant } from "../../../network/model/rules.ts";
import type { Random } from "../random.ts";
import { attached, type AttachmentOperation, drawAttachment } from "./attachment-sequence.ts";

/** One thing done to a kernel, in names: indexes differ between the fake and the real one. */
export type Operation =
  | AttachmentOperation
  | {
      readonly kind: "bridge";
      readonly name: string;
      readonly mac?: Mac;
      readonly mtu?: number;
      readonly group?: number;
      readonly up?: boolean;
    }
  | { readonly kind: "tap"; readonly name: string; readonly mac: Mac }
  | { readonly kind: "close-tap"; readonly name: string }
  | {
      readonly kind: "veth";
      readonly name: string;
      readonly peer: string;
      readonly mac: Mac;
      readonly peerMac: Mac;
    }
  | { readonly kind: "change"; readonly link: string; readonly set: Settings }
  | { readonly kind: "master"; readonly link: string; readonly bridge: string }
  | { readonly kind: "leave"; readonly link: string }
  | { readonly kind: "isolate"; readonly link: string; readonly isolated: boolean }
  | { readonly kind: "group"; readonly links: readonly string[]; readonly group: number }
  | { readonly kind: "delete"; readonly link: string }
  | { readonly kind: "delete-group"; readonly group: number }
  | { readonly kind: "address"; readonly link: string; readonly prefix: IpPrefix }
  | { readonly kind: "delete-address"; readonly link: string; readonly prefix: IpPrefix }
  | { readonly kind: "neighbour"; readonly link: string; readonly ip: Ip; readonly mac: Mac }
  | { readonly kind: "forget"; readonly link: string; readonly ip: Ip }
  | { readonly kind: "sysctl"; readonly key: string; readonly value: string }
  | { readonly kind: "restore"; readonly variant: Variant; readonly input: string };

export interface Settings {
  readonly up?: boolean;
  readonly mtu?: number;
  readonly mac?: Mac;
  readonly group?: number;
  readonly alias?: string;
  readonly name?: string;
}

const bridges = ["br0", "br1"];
const taps = ["tap0", "tap1", "tap2"];
const veths = [["va", "vb"]] as const;
/** What attachments make on the host: ends of pairs, and links for the way out. */
const others = ["va", "vb", "pc0", "pc1", "pi0"];
const all = [...bridges, ...taps, ...others, "lo", "nosuch"];
export const macs = Array.from({ length: 6 }, (_, i) => `02:00:00:00:00:0${i + 1}` as Mac);
const badMacs = ["01:00:5e:00:00:01", "00:00:00:00:00:00"] as Mac[];
// From 1280, below which IPv6 leaves a link with all its settings: podnet asks for none of these.
const mtus = [1280, 1400, 1500, 1499, 9000];
const badMtus = [67, 70_000];
const prefixes = [
  "10.1.0.1/24",
  "10.1.0.2/24",
  "10.1.0.1/16",
  "10.2.0.1/32",
  "10.1.0.3/24",
  "fd00:1::1/64",
  "fd00:1::2/64",
] as IpPrefix[];
const ips = ["10.1.0.9", "10.1.0.8", "fd00:1::9"] as Ip[];
/** Only links that sequences make are ended by group. */
const groups = [73, 74];
/** Chains of others and of ours; FORWARD holds both. */
const chains = ["HYPER", "OTHER"];

/** A sequence of operations, about half of which make sense. */
export function drawSequence(random: Random): Operation[] {
  const length = 6 + random.below(14);
  const first: Operation[] = random.chance(0.7)
    ? [{ kind: "bridge", name: "br0", ...(random.chance(0.5) ? { mac: random.pick(macs) } : {}) }]
    : [];
  if (random.chance(0.3)) first.push(...attached);
  return [...first, ...Array.from({ length }, () => drawOperation(random))];
}

function drawOperation(random: Random): Operation {
  const link = random.chance(0.6) ? random.pick(taps) : random.pick(all);
  if (random.chance(0.3)) return drawAttachment(random);
  const kind = random.weighted<Exclude<Operation["kind"], AttachmentOperation["kind"]>>({
    bridge: 3,
    tap: 6,
    "close-tap": 1,
    veth: 1.5,
    change: 10,
    master: 6,
    leave: 0.7,
    isolate: 3,
    group: 1,
    delete: 0.7,
    "delete-group": 0.3,
    address: 4,
    "delete-address": 2,
    neighbour: 2,
    forget: 2,
    sysctl: 2,
    restore: 0.5,
  });
  switch (kind) {
    case "bridge":
      return {
        kind,
        name: random.pick(random.chance(0.9) ? bridges : all),
        ...(random.chance(0.6) ? { mac: random.pick(macs) } : {}),
        ...(random.chance(0.4) ? { mtu: drawMtu(random) } : {}),
        ...(random.chance(0.4) ? { group: random.pick(groups) } : {}),
        ...(random.chance(0.3) ? { up: random.chance(0.5) } : {}),
      };
    case "tap":
      return { kind, name: random.pick(random.chance(0.9) ? taps : all), mac: random.pick(macs) };
    case "close-tap":
      return { kind, name: random.pick(taps) };
    case "veth": {
      const [name, peer] = random.pick(veths);
      return { kind, name, peer, mac: random.pick(macs), peerMac: random.pick(macs) };
    }
    case "change":
      return { kind, ...drawChange(random, link) };
    case "master":
      return { kind, link, bridge: random.chance(0.85) ? random.pick(bridges) : random.pick(all) };
    case "isolate":
      return { kind, link, isolated: random.chance(0.6) };
    case "group":
      return { kind, links: [random.pick(taps), random.pick(taps)], group: random.pick(groups) };
    case "leave":
    case "delete":
      return { kind, link };
    case "delete-group":
      return { kind, group: random.pick(groups) };
    case "address":
    case "delete-address":
      return {
        kind,
        link: random.chance(0.7) ? random.pick(bridges) : link,
        prefix: random.pick(prefixes),
      };
    case "neighbour":
      return { kind, link: random.pick(bridges), ip: random.pick(ips), mac: random.pick(macs) };
    case "forget":
      return { kind, link: random.pick(bridges), ip: random.pick(ips) };
    case "sysctl":
      return { kind, ...drawSysctl(random, link) };
    case "restore":
      return { kind, variant: random.chance(0.7) ? "nft" : "legacy", input: drawRestore(random) };
    default:
      return assertNever(kind);
  }
}

const drawMtu = (random: Random): number => random.pick(random.chance(0.85) ? mtus : badMtus);

function drawChange(random: Random, link: string): { link: string; set: Settings } {
  if (link === "lo") return { link: "br0", set: drawSettings(random) };
  const set = drawSettings(random);
  // An ifb takes any: below 1280 IPv6 leaves it with all its settings.
  if (link.startsWith("pi") && set.mtu !== undefined) return { link, set: { ...set, mtu: 1400 } };
  return { link, set };
}

function drawSettings(random: Random): Settings {
  const one = (): Settings => {
    const what = random.weighted({ up: 4, mtu: 4, mac: 2, group: 1, alias: 2, name: 0.7 });
    switch (what) {
      case "up":
        return { up: random.chance(0.7) };
      case "mtu":
        return { mtu: drawMtu(random) };
      case "mac":
        return { mac: random.pick(random.chance(0.85) ? macs : badMacs) };
      case "group":
        return { group: random.pick(groups) };
      case "alias":
        return {
          alias: random.pick([
            "podnet:pod:abcdefghijkl:0",
            "podnet:network:default",
            "mine",
            "",
            "x".repeat(300),
          ]),
        };
      case "name":
        return { name: random.pick([...taps, ...bridges]) };
      default:
        return assertNever(what);
    }
  };
  return random.chance(0.7) ? one() : { ...one(), ...one() };
}

function drawSysctl(random: Random, link: string): { key: string; value: string } {
  if (random.chance(0.4))
    return {
      key: random.pick(["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"]),
      value: random.pick(["0", "1", "1", "many"]),
    };
  const setting = random.pick(["accept_ra", "addr_gen_mode", "disable_ipv6", "forwarding"]);
  return { key: `net/ipv6/conf/${link}/${setting}`, value: random.pick(["0", "1", "2", "9", "x"]) };
}

function drawRestore(random: Random): string {
  const table = random.pick(["filter", "nat"]);
  const builtIn = table === "filter" ? "FORWARD" : "POSTROUTING";
  const rule = (): string => {
    const comment = `-m comment --comment "podnet:network:${random.pick(["a", "b"])}"`;
    const out = `-o ${random.pick(bridges)}`;
    return random.pick([
      `${out} ${comment} -j ACCEPT`,
      `${out} -m conntrack --ctstate RELATED,ESTABLISHED ${comment} -j ACCEPT`,
      `! -i br0 ${out} ${comment} -j DROP`,
      `${comment} -j ${random.pick(chains)}`,
      `-s 10.1.0.0/24 ${out} -j RETURN`,
      `-p tcp -m tcp --dport 8080:8082 ${comment} -j DNAT --to-destination 10.1.0.9:80-82/8080`,
      `-d 10.1.0.9/32 -p udp -m udp --dport 53 -m conntrack --ctstate DNAT ${comment} -j ACCEPT`,
    ]);
  };
  const chain = (): string => random.pick([builtIn, ...chains]);
  const lines = Array.from({ length: 1 + random.below(5) }, () => {
    const what = random.weighted({ declare: 3, append: 3, insert: 4, remove: 2, drop: 1 });
    switch (what) {
      case "declare":
        return `:${random.pick(chains)} - [0:0]`;
      case "append":
        return `-A ${chain()} ${rule()}`;
      case "insert":
        return `-I ${chain()} ${1 + random.below(3)} ${rule()}`;
      case "remove":
        return `-D ${chain()} ${rule()}`;
      case "drop":
        return `-X ${random.pick(chains)}`;
      default:
        return assertNever(what);
    }
  });
  return `*${table}\n${lines.join("\n")}\nCOMMIT\n`;
}
