import {
  type Cidr,
  type Ip,
  type Ipv4,
  dottedMask,
  ipOf,
  lengthOf,
  networkOf,
  parseIp,
  withLength,
} from "../../core/address.ts";
import {
  type Fields,
  type ParseValue,
  asInteger,
  asObject,
  asString,
  asText,
  encodeJson,
  given,
  malformed,
  parseObject,
} from "./fields.ts";

/** One address of SETUPINTERFACE, IPv4 as in hyperstart. */
export interface AddressSetup {
  readonly address: Ipv4;
  readonly length: number;
  /** The address was written with a leading `-`: it is taken away. */
  readonly remove: boolean;
}

/** SETUPINTERFACE, whichever form it came in. */
export interface InterfaceSetup {
  readonly device: string;
  /** Undefined keeps the name; runv sends `""` for that. */
  readonly newName?: string;
  readonly addresses: readonly AddressSetup[];
  /** Undefined leaves the MTU alone; runv sends 0 for that. */
  readonly mtu?: number;
}

export interface RouteSetup {
  readonly destination: Cidr;
  readonly gateway?: Ip;
  readonly device?: string;
}

/**
 * Prefix length of a netmask as hyperstart takes it: `255.255.255.0`, `24` or `0x18`.
 * Throws `AGENT_PROTOCOL`, for a mask with holes too.
 */
export function parseMaskLength(text: string, field = "netMask"): number {
  const number = /^(?:[0-9]{1,2}|0[xX][0-9a-fA-F]{1,2})$/.test(text) ? Number(text) : undefined;
  if (number !== undefined && number <= 32) return number;
  for (let length = 0; length <= 32; length++) if (dottedMask(length) === text) return length;
  throw malformed(`"${field}" is not a netmask`, field);
}

function parseIpv4(text: string, field: string): Ipv4 {
  const ip = asText(parseIp)(text, field);
  if (ip.includes(":")) throw malformed(`"${field}" is not an IPv4 address`, field);
  return ip as Ipv4;
}

function addressFrom(text: string, mask: string, path: string): AddressSetup {
  const remove = text.startsWith("-");
  return {
    address: parseIpv4(remove ? text.slice(1) : text, path),
    length: parseMaskLength(mask, path),
    remove,
  };
}

const asAddress: ParseValue<AddressSetup> = (value, path) =>
  asObject((fields) =>
    addressFrom(fields.required("ipAddress", asString), fields.required("netMask", asString), path),
  )(value, path);

/** An empty name counts as none. */
const asName: ParseValue<string | undefined> = (value, path) => asString(value, path) || undefined;

function readInterface(fields: Fields): InterfaceSetup {
  const device = fields.required("device", asString);
  if (device === "") throw malformed(`"${fields.at("device")}" is empty`, fields.at("device"));
  const addresses = fields.list("ipAddresses", asAddress);
  // Clients of API 4242 and before send one address, flat.
  const flat = fields.optional("ipAddress", asName);
  const mask = fields.optional("netMask", asName);
  if (flat !== undefined) {
    if (mask === undefined)
      throw malformed(`"${fields.at("netMask")}" is missing`, fields.at("netMask"));
    addresses.unshift(addressFrom(flat, mask, fields.at("ipAddress")));
  }
  const mtu = fields.optional("mtu", asInteger({ max: 65535 }));
  return {
    device,
    ...given("newName", fields.optional("newDeviceName", asName)),
    addresses,
    ...given("mtu", mtu === 0 ? undefined : mtu),
  };
}

export const asInterface = asObject(readInterface);

/** Payload of SETUPINTERFACE and DELETEINTERFACE (which uses `device` alone). Throws `AGENT_PROTOCOL`. */
export const parseInterfaceSetup = (payload: Uint8Array): InterfaceSetup =>
  parseObject(payload, readInterface);

const defaultDestinations: readonly string[] = ["0.0.0.0/0", "default", "any", "all"];

/** hyperstart's destinations: the default's spellings, `a.b.c.d/len`, `a.b.c.d/mask`, or one host. */
export function parseDestination(text: string, field = "dest"): Cidr {
  if (defaultDestinations.includes(text)) return "0.0.0.0/0" as Cidr;
  const slash = text.indexOf("/");
  const ip = parseIpv4(slash < 0 ? text : text.slice(0, slash), field);
  const length = slash < 0 ? 32 : parseMaskLength(text.slice(slash + 1), field);
  const network = networkOf(withLength(ip, length));
  // The kernel refuses host bits (EINVAL); hyperstart never reads its answer and says ACK.
  if (ipOf(network) !== ip) throw malformed(`"${field}" has host bits set`, field);
  return network;
}

const asDestination: ParseValue<Cidr> = (value, path) =>
  parseDestination(asString(value, path), path);

const asGateway: ParseValue<Ip> = (value, path) => parseIpv4(asString(value, path), path);

export const asRoute: ParseValue<RouteSetup> = asObject((fields) => ({
  destination: fields.required("dest", asDestination),
  ...given("gateway", fields.optional("gateway", asGateway)),
  ...given("device", fields.optional("device", asName)),
}));

/** Payload of SETUPROUTE; `{}` and an empty list are valid and do nothing. Throws `AGENT_PROTOCOL`. */
export const parseRouteSetup = (payload: Uint8Array): readonly RouteSetup[] =>
  parseObject(payload, (fields) => fields.list("routes", asRoute));

/** SETUPINTERFACE as runv writes it: all four keys, dotted masks, 0 and `""` for what stays. */
export const encodeInterfaceSetup = (setup: InterfaceSetup): Uint8Array =>
  encodeJson(interfaceJson(setup));

export const interfaceJson = (setup: InterfaceSetup): unknown => ({
  device: setup.device,
  newDeviceName: setup.newName ?? "",
  ipAddresses: setup.addresses.map((a) => ({
    ipAddress: `${a.remove ? "-" : ""}${a.address}`,
    netMask: dottedMask(a.length),
  })),
  mtu: setup.mtu ?? 0,
});

export const encodeRouteSetup = (routes: readonly RouteSetup[]): Uint8Array =>
  encodeJson({ routes: routes.map(routeJson) });

export const routeJson = (route: RouteSetup): unknown => ({
  dest: route.destination,
  ...given("gateway", route.gateway),
  ...given("device", route.device),
});

/** `a.b.c.d` and length of an IPv4 prefix, as an address to set. */
export const addressSetup = (prefix: Cidr | string): AddressSetup => ({
  address: ipOf(prefix as Cidr) as Ipv4,
  length: lengthOf(prefix as Cidr),
  remove: false,
});
