import {
  contains,
  familyBits,
  familyOf,
  type Ip,
  ipOf,
  type IpPrefix,
  ipToBigInt,
  lengthOf,
  type Mac,
  networkOf,
  parseIp,
  parseIpPrefix,
  parseUnicastMac,
  rangeOf,
} from "../core/address.ts";
import { PodnetError } from "../core/errors.ts";
import { type IfName, type NetworkName, parseIfName, parseNetworkName } from "../core/names.ts";
import type * as wire from "./gen/podnet/v1/pod_spec_pb.ts";
import type { InterfaceSpec } from "./pod-spec.ts";
import { checkUnicast } from "./unicast.ts";
import { checkCount, invalid } from "./fields.ts";

/** Most interfaces one pod may have. */
const maxInterfaces = 16;
/** RFC 791: every IPv4 host takes 576 bytes. RFC 8200 5: every IPv6 link carries 1280. */
const minMtu = { 4: 576, 6: 1280 } as const;
const maxMtu = 65535;

/** The name an interface gets in the guest. */
export const guestNameOf = (spec: InterfaceSpec, position: number): string =>
  spec.guestName ?? `eth${position}`;

/** Checks the interfaces one by one and against each other; none means one automatic. */
export function validateInterfaces(
  interfaces: readonly wire.Interface[],
  network: NetworkName,
): readonly InterfaceSpec[] {
  checkCount(interfaces, maxInterfaces, "interfaces");
  if (interfaces.length === 0) return [{ network }];
  const specs = interfaces.map((one, i) => validateInterface(one, `interfaces[${i}]`, network));
  refuseTwice(specs, "mac", (spec) => spec.mac, macTwice);
  refuseTwice(specs, "address", addressKey, addressTwice);
  refuseTwice(specs, "guest_name", guestNameOf, nameTwice);
  refuseTwice(specs, "gateway", gatewayFamily, gatewayTwice);
  return specs;
}

function validateInterface(
  one: wire.Interface,
  field: string,
  network: NetworkName,
): InterfaceSpec {
  const address = one.address === "" ? undefined : parseAddress(one.address, `${field}.address`);
  const gateway = one.gateway === "" ? undefined : parseIp(one.gateway, `${field}.gateway`);
  const mac: Mac | undefined =
    one.mac === "" ? undefined : parseUnicastMac(one.mac, `${field}.mac`);
  const guestName =
    one.guestName === "" ? undefined : parseGuestName(one.guestName, `${field}.guest_name`);
  if (gateway !== undefined) checkGateway(gateway, address, `${field}.gateway`);
  const six = [address, gateway].some((ip) => ip !== undefined && familyOf(ip) === 6);
  if (one.mtu !== 0) checkMtu(one.mtu, six ? 6 : 4, `${field}.mtu`);
  return {
    network: one.network === "" ? network : parseNetworkName(one.network, `${field}.network`),
    ...(address === undefined ? {} : { address }),
    ...(mac === undefined ? {} : { mac }),
    ...(one.mtu === 0 ? {} : { mtu: one.mtu }),
    ...(gateway === undefined ? {} : { gateway }),
    ...(guestName === undefined ? {} : { guestName }),
  };
}

const hasLength = (address: Ip | IpPrefix): address is IpPrefix => address.includes("/");
const bare = (address: Ip | IpPrefix): Ip => (hasLength(address) ? ipOf(address) : address);

function parseAddress(text: string, field: string): Ip | IpPrefix {
  if (!text.includes("/")) {
    const ip = parseIp(text, field);
    checkUnicast(ip, field);
    return ip;
  }
  const prefix = parseIpPrefix(text, field);
  checkUnicast(ipOf(prefix), field);
  // RFC 3021: both addresses of a /31 are usable; an IPv6 network has no broadcast.
  if (lengthOf(prefix) >= familyBits(familyOf(prefix)) - 1) return prefix;
  const { first, last } = rangeOf(networkOf(prefix));
  const value = ipToBigInt(ipOf(prefix));
  if (value === first || (familyOf(prefix) === 4 && value === last)) {
    throw new PodnetError(
      "ADDRESS_RESERVED",
      `${prefix} is the ${value === first ? "network" : "broadcast"} address of ${networkOf(prefix)}`,
      { field, hint: "Give an address between the network's first and last" },
    );
  }
  return prefix;
}

function parseGuestName(text: string, field: string): IfName {
  const name = parseIfName(text, field);
  // `all` and `default` are folders of /proc/sys/net/ipv4/conf, not interfaces.
  if (name === "lo" || name === "all" || name === "default") {
    throw invalid(field, `"${name}" means something else to Linux`, "Use a name such as eth0");
  }
  return name;
}

function checkGateway(gateway: Ip, address: Ip | IpPrefix | undefined, field: string): void {
  checkUnicast(gateway, field, { linkLocal: true });
  if (address === undefined || familyOf(gateway) !== familyOf(address)) return;
  if (gateway === bare(address)) {
    throw new PodnetError("ADDRESS_INVALID", `${gateway} is the pod's own address`, {
      field,
      hint: "Give the address of another machine on the network",
    });
  }
  const linkLocal = familyOf(gateway) === 6 && gateway.startsWith("fe80:");
  if (hasLength(address) && !linkLocal && !contains(networkOf(address), gateway)) {
    throw new PodnetError(
      "ADDRESS_OUT_OF_RANGE",
      `Gateway ${gateway} is not in ${networkOf(address)}`,
      { field, hint: `Give an address within ${networkOf(address)}` },
    );
  }
}

/** Throws `MTU_OUT_OF_RANGE`; the network's own address family is known to the daemon alone. */
export function checkMtu(mtu: number, family: 4 | 6, field: string): void {
  if (mtu >= minMtu[family] && mtu <= maxMtu) return;
  throw new PodnetError("MTU_OUT_OF_RANGE", `An MTU of ${mtu} is out of range`, {
    field,
    hint: `Use ${minMtu[family]} to ${maxMtu}${family === 6 ? ", as IPv6 wants" : ""}`,
    details: { mtu, smallest: minMtu[family], largest: maxMtu },
  });
}

type Key = string | number | undefined;
type Twice = (field: string, key: string | number, other: number) => PodnetError;

/** Throws when two interfaces have the same key; the later one is at fault. */
function refuseTwice(
  specs: readonly InterfaceSpec[],
  name: string,
  keyOf: (spec: InterfaceSpec, position: number) => Key,
  error: Twice,
): void {
  const seen = new Map<string | number, number>();
  specs.forEach((spec, i) => {
    const key = keyOf(spec, i);
    if (key === undefined) return;
    const other = seen.get(key);
    if (other !== undefined) throw error(`interfaces[${i}].${name}`, key, other);
    seen.set(key, i);
  });
}

const addressKey = (spec: InterfaceSpec): Key =>
  spec.address === undefined ? undefined : `${bare(spec.address)} of ${spec.network}`;
const gatewayFamily = (spec: InterfaceSpec): Key =>
  spec.gateway === undefined ? undefined : familyOf(spec.gateway);

const macTwice: Twice = (field, key, other) =>
  new PodnetError("MAC_IN_USE", `interfaces[${other}] has ${key} too`, {
    field,
    hint: "Give each interface an address of its own, or leave mac out",
  });
const addressTwice: Twice = (field, key, other) =>
  new PodnetError("ADDRESS_IN_USE", `interfaces[${other}] has ${key} too`, {
    field,
    hint: "Give each interface an address of its own, or leave address out",
  });
const nameTwice: Twice = (field, key, other) =>
  invalid(
    field,
    `interfaces[${other}] is called "${key}" too`,
    "Give each interface a name of its own; unnamed ones are eth0, eth1 and so on",
  );
const gatewayTwice: Twice = (field, key, other) =>
  new PodnetError(
    "GATEWAY_CONFLICT",
    `interfaces[${other}] has the default route for IPv${key} already`,
    { field, hint: "Leave one of the two gateways out, and write routes for what lies behind it" },
  );
