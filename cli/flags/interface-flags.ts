import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  BridgePortSchema,
  CniInterfaceSchema,
  type Interface,
  InterfaceSchema,
  RateLimitsSchema,
  type RouteSchema,
} from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { limitKeys, limitParts, limitsFrom, namesLimits } from "./limit-flags.ts";
import { parseCount, parseParts } from "../parse.ts";
import { usage } from "../usage.ts";

/** Parts of an interface that have a value. */
const keys = [
  "network",
  "bridge",
  "address",
  "mac",
  "mtu",
  "gateway",
  "metric",
  "name",
  "tap",
  "vlan",
  "isolated",
  "learning",
  "guard",
  ...limitKeys,
  "cni",
  "netns",
  "link",
] as const;
/** And those that say enough by themselves. */
const words = ["kept", "loopback"] as const;

export type InterfaceParts = Readonly<
  Partial<Record<(typeof keys | typeof words)[number], string>>
>;

/** How an interface is written on the command line. */
export const interfaceHelp =
  "network=…|bridge=…|loopback, address=IP[/LEN][+…]|none, mac=…, mtu=…, gateway=…, metric=…, name=…, tap=…[,kept], vlan=…, isolated=on|off, learning=on|off, guard=on|off, in=RATE, out=RATE, burst=BYTES, pps=COUNT (also in-burst, out-pps, …); cni[=LIST]|netns=PATH, link=…, name=…";

/** Puts parts in the place of what an interface has. */
export function overlay(into: Interface, parts: InterfaceParts): Interface {
  if (parts.network !== undefined) into.network = parts.network;
  if (parts.bridge !== undefined) into.bridge = parts.bridge;
  if (parts.address !== undefined) setAddresses(into, parts.address);
  if (parts.mac !== undefined) into.mac = parts.mac;
  if (parts.mtu !== undefined) into.mtu = parseCount("MTU", parts.mtu);
  if (parts.gateway !== undefined) into.gateway = parts.gateway;
  if (parts.metric !== undefined) into.metric = parseCount("metric", parts.metric);
  if (parts.name !== undefined) into.guestName = parts.name;
  if (parts.tap !== undefined) into.tap = parts.tap;
  if (parts.kept !== undefined) into.tapKept = true;
  if (parts.loopback !== undefined) into.loopback = true;
  overlayCni(into, parts);
  const { vlan, isolated, learning, guard } = parts;
  const limits = limitParts(parts);
  const given = [vlan, isolated, learning, guard].some((part) => part !== undefined);
  if (!given && !namesLimits(limits)) return into;
  into.port ??= create(BridgePortSchema);
  if (vlan !== undefined) into.port.vlan = parseCount("VLAN", vlan);
  if (isolated !== undefined) into.port.isolated = parseSwitch("isolated", isolated);
  if (learning !== undefined) into.port.learning = parseSwitch("learning", learning);
  if (guard !== undefined) into.port.guard = parseSwitch("guard", guard);
  if (namesLimits(limits))
    into.port.limits = create(RateLimitsSchema, limitsFrom(limits, into.port.limits));
  return into;
}

/** A link of CNI plugins: `cni` takes the first list that is good. */
function overlayCni(into: Interface, { cni, netns, link }: InterfaceParts): void {
  if (cni === undefined && netns === undefined && link === undefined) return;
  into.cni ??= create(CniInterfaceSchema);
  if (cni !== undefined) into.cni.list = cni;
  if (netns !== undefined) into.cni.netns = netns;
  if (link !== undefined) into.cni.link = link;
}

function setAddresses(into: Interface, text: string): void {
  const several = text.split("+");
  into.address = several.length > 1 ? "" : text;
  into.addresses = several.length > 1 ? several : [];
}

function parseSwitch(part: string, text: string): boolean {
  if (text === "on" || text === "off") return text === "on";
  throw usage(`${part} "${text}" is neither on nor off`, `Write ${part}=on or ${part}=off`);
}

/** An interface as one word of the command line: `lan` is short for `network=lan`. */
export function interfaceFrom(flag: string, text: string): Interface {
  const { first, rest } = parseParts(flag, text, keys, words);
  const lead: InterfaceParts =
    first === "cni"
      ? { cni: "" }
      : (words as readonly string[]).includes(first)
        ? { [first]: "true" }
        : { network: first };
  return overlay(create(InterfaceSchema), first === "" ? rest : { ...lead, ...rest });
}

/** A route as one word of the command line. */
export function routeFrom(flag: string, text: string): MessageInitShape<typeof RouteSchema> {
  const { first, rest } = parseParts(flag, text, ["via", "dev", "metric"]);
  const { via = "", dev = "", metric } = rest;
  return {
    destination: first,
    gateway: via,
    interface: dev,
    metric: metric === undefined ? 0 : parseCount("metric", metric),
  };
}
