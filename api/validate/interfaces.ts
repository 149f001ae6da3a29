import {
  contains,
  familyBits,
  familyOf,
  type Ip,
  ipOf,
  type IpPrefix,
  ipToBigInt,
  lengthOf,
  networkOf,
  parseIp,
  parseIpPrefix,
  parseUnicastMac,
  rangeOf,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { type IfName, type NetworkName, parseIfName, parseNetworkName } from "../../core/names.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import {
  bareIp,
  type CniSpec,
  hasLength,
  type InterfaceChoices,
  type InterfaceSpec,
  type PortChoices,
} from "../pod-spec.ts";
import { checkUnicast } from "./unicast.ts";
import { checkCount, invalid } from "../fields.ts";
import { changedLimits, validateLimits } from "../../core/rate-limits.ts";
import { refuseTwice } from "./unique-interfaces.ts";
import { cniInterface, validateCni } from "./cni.ts";

/** Most interfaces one pod may have. */
export const maxInterfaces = 24;
const maxAddresses = 16;
/** RFC 791: every IPv4 host takes 576 bytes. RFC 8200 5: every IPv6 link carries 1280. */
const minMtu = { 4: 576, 6: 1280 } as const;
const maxMtu = 65535;
/** IEEE 802.1Q: 0 and 4095 are no VLANs. */
const maxVlan = 4094;

/** Checks the interfaces one by one and against each other; none means one automatic. */
export function validateInterfaces(
  interfaces: readonly wire.Interface[],
  network: NetworkName,
): readonly InterfaceSpec[] {
  checkCount(interfaces, maxInterfaces, "interfaces");
  if (interfaces.length === 0) return [{ network }];
  const specs = interfaces.map((one, i) => validateInterface(one, `interfaces[${i}]`, network));
  refuseTwice(specs);
  return specs;
}

/** Checks one interface by itself. */
export function validateInterface(
  one: wire.Interface,
  field: string,
  network: NetworkName,
): InterfaceSpec {
  const whither = validateKind(one, field, network);
  const choices = validateChoices(one, field);
  if (whither.kind === "loopback") return validateLoopback(one, choices, field);
  if (whither.kind === "cni") return cniInterface(whither.cni, choices, one.port, field);
  if (whither.kind !== undefined) checkOwnAddresses(choices.addresses, whither.kind, field);
  const port = validatePort(one.port, `${field}.port`);
  if (port !== undefined && whither.kind === "tap")
    throw invalid(`${field}.port`, "A kept tap stays as it is", "Leave the port's options out");
  return { ...whither, ...choices, ...(port === undefined ? {} : { port }) };
}

type Whither =
  | { readonly network: NetworkName; readonly kind?: undefined }
  | { readonly kind: "bridge"; readonly bridge: IfName }
  | { readonly kind: "tap"; readonly tap: IfName }
  | { readonly kind: "loopback" }
  | { readonly kind: "cni"; readonly cni: CniSpec };

/** Where an interface leads, which is said once. */
function validateKind(one: wire.Interface, field: string, network: NetworkName): Whither {
  const said = [
    one.network === "" ? undefined : "network",
    one.bridge === "" ? undefined : "bridge",
    one.tapKept ? "tap_kept" : undefined,
    one.loopback ? "loopback" : undefined,
    one.cni === undefined ? undefined : "cni",
  ].filter((each) => each !== undefined);
  const [first, second] = said;
  if (second !== undefined)
    throw invalid(`${field}.${second}`, `${first} says where it leads`, "Leave one of them out");
  if (one.bridge !== "")
    return { kind: "bridge", bridge: parseIfName(one.bridge, `${field}.bridge`) };
  if (one.loopback) return { kind: "loopback" };
  if (one.cni !== undefined) return { kind: "cni", cni: validateCni(one.cni, `${field}.cni`) };
  if (!one.tapKept)
    return {
      network: one.network === "" ? network : parseNetworkName(one.network, `${field}.network`),
    };
  if (one.tap === "") throw invalid(`${field}.tap`, "A kept tap has a name", "Name it");
  return { kind: "tap", tap: parseIfName(one.tap, `${field}.tap`) };
}

function validateChoices(one: wire.Interface, field: string): InterfaceChoices {
  const addresses = validateAddresses(one, field);
  const gateway = one.gateway === "" ? undefined : parseIp(one.gateway, `${field}.gateway`);
  const mac = one.mac === "" ? undefined : parseUnicastMac(one.mac, `${field}.mac`);
  const guestName =
    one.guestName === "" ? undefined : parseGuestName(one.guestName, `${field}.guest_name`);
  const tap = one.tap === "" ? undefined : parseTapName(one.tap, `${field}.tap`);
  if (gateway !== undefined) checkGateway(gateway, addresses, `${field}.gateway`);
  const six = [...(addresses ?? []), gateway].some((ip) => ip !== undefined && familyOf(ip) === 6);
  if (one.mtu !== undefined) checkMtu(one.mtu, six ? 6 : 4, `${field}.mtu`);
  return {
    ...(addresses === undefined ? {} : { addresses }),
    ...(mac === undefined ? {} : { mac }),
    ...(one.mtu === undefined ? {} : { mtu: one.mtu }),
    ...(gateway === undefined ? {} : { gateway }),
    ...(one.metric === 0 ? {} : { metric: one.metric }),
    ...(guestName === undefined ? {} : { guestName }),
    ...(tap === undefined ? {} : { tap }),
  };
}

/** A loopback interface has addresses and nothing else. */
function validateLoopback(
  one: wire.Interface,
  { addresses = [], ...others }: InterfaceChoices,
  field: string,
): InterfaceSpec {
  const [more] = [...Object.keys(others), ...(one.port === undefined ? [] : ["port"])];
  if (more !== undefined) {
    const name = more === "guestName" ? "guest_name" : more;
    throw invalid(`${field}.${name}`, "loopback has addresses alone", "Leave it out");
  }
  if (addresses.length === 0)
    throw invalid(`${field}.addresses`, "loopback without an address is nothing", "Give one");
  checkLengths(addresses, field);
  return { kind: "loopback", addresses };
}

/** As in the ancestor: who takes a foreign bridge has to say which address is his there. */
function checkOwnAddresses(
  addresses: InterfaceChoices["addresses"],
  kind: "bridge" | "tap",
  field: string,
): void {
  if (addresses === undefined)
    throw invalid(
      `${field}.address`,
      `podnet assigns no addresses on a foreign ${kind}`,
      "Give an address with its length, such as 10.1.2.3/24, or none",
    );
  checkLengths(addresses, field);
}

function checkLengths(addresses: readonly (Ip | IpPrefix)[], field: string): void {
  const bareOne = addresses.find((address) => !hasLength(address));
  if (bareOne !== undefined)
    throw invalid(
      `${field}.address`,
      `The prefix length of ${bareOne} is missing`,
      `Append it, such as ${bareOne}/${familyOf(bareOne) === 4 ? 24 : 64}`,
    );
}

function validatePort(port: wire.BridgePort | undefined, field: string): PortChoices | undefined {
  if (port === undefined) return undefined;
  const { vlan, isolated, learning, guard } = port;
  if (vlan !== undefined && (vlan < 1 || vlan > maxVlan))
    throw invalid(`${field}.vlan`, `${vlan} is no VLAN`, `Use 1 to ${maxVlan}, or leave it out`);
  const limits = changedLimits(undefined, validateLimits(port.limits, `${field}.limits`));
  const choices = {
    ...(vlan === undefined ? {} : { vlan }),
    ...(isolated === undefined ? {} : { isolated }),
    ...(learning === undefined ? {} : { learning }),
    ...(guard === false ? { guard } : {}),
    ...(limits === undefined ? {} : { limits }),
  };
  return Object.keys(choices).length === 0 ? undefined : choices;
}

/** `address`, or `addresses` when there are several. */
function validateAddresses(
  one: Pick<wire.Interface, "address" | "addresses">,
  field: string,
): readonly (Ip | IpPrefix)[] | undefined {
  if (one.address !== "" && one.addresses.length > 0)
    throw invalid(`${field}.addresses`, "address is given as well", "Give all in addresses");
  if (one.address === "none") return [];
  if (one.address !== "") return [parseAddress(one.address, `${field}.address`)];
  return one.addresses.length === 0 ? undefined : validateAddressList(one.addresses, field);
}

/** All addresses an interface is to have; `none` alone is none. */
export function validateAddressList(
  addresses: readonly string[],
  field: string,
): readonly (Ip | IpPrefix)[] {
  checkCount(addresses, maxAddresses, `${field}.addresses`);
  if (addresses.length === 1 && addresses[0] === "none") return [];
  return addresses.map((text, i) => parseAddress(text, `${field}.addresses[${i}]`));
}

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
  if (name === "lo") {
    throw invalid(field, `"${name}" means something else to Linux`, "Use a name such as eth0");
  }
  return name;
}

function parseTapName(text: string, field: string): IfName {
  const name = parseIfName(text, field);
  // Names podnet makes itself: of a pod's id and a digit.
  if (/^p[ni][a-z2-7]{12}[0-9a-z]$/.test(name) || name === "lo")
    throw invalid(field, `"${name}" means something else`, "Use a name of your own");
  return name;
}

/** Also of a gateway that an interface gets later. */
function checkGateway(
  gateway: Ip,
  addresses: readonly (Ip | IpPrefix)[] | undefined,
  field: string,
): void {
  checkUnicast(gateway, field, { linkLocal: true });
  const same = addresses?.filter((address) => familyOf(address) === familyOf(gateway)) ?? [];
  if (same.some((address) => gateway === bareIp(address))) {
    throw new PodnetError("ADDRESS_INVALID", `${gateway} is the pod's own address`, {
      field,
      hint: "Give the address of another machine on the network",
    });
  }
  const linkLocal = familyOf(gateway) === 6 && gateway.startsWith("fe80:");
  const networks = same.filter(hasLength).map(networkOf);
  if (linkLocal || networks.length < same.length || networks.length === 0) return;
  if (!networks.some((network) => contains(network, gateway))) {
    throw new PodnetError(
      "ADDRESS_OUT_OF_RANGE",
      `Gateway ${gateway} is not in ${networks.join(", ")}`,
      { field, hint: `Give an address within ${networks.join(", ")}` },
    );
  }
}

/** Throws `MTU_OUT_OF_RANGE`; the network's own address family is known to the daemon alone. */
export function checkMtu(mtu: number, family: 4 | 6, field: string): void {
  if (mtu >= minMtu[family] && mtu <= maxMtu) return;
  throw new PodnetError("MTU_OUT_OF_RANGE", `An MTU of ${mtu} is out of range`, {
    field,
    hint: `Use ${minMtu[family]} to ${maxMtu}${family === 6 ? ", as IPv6 requires" : ""}`,
    details: { mtu, smallest: minMtu[family], largest: maxMtu },
  });
}
