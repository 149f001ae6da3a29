import {
  type Cidr,
  type Family,
  type Ip,
  dottedMask,
  familyBits,
  familyOf,
  ipOf,
  networkOf,
  parseIp,
  withLength,
} from "../../core/address.ts";
import { parseIfName } from "../../core/names.ts";
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

/**
 * One address of SETUPINTERFACE. hyperstart takes IPv4 alone; podnet's agent takes both families.
 */
export interface AddressSetup {
  readonly address: Ip;
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
 * Prefix length of a netmask as hyperstart takes it: `255.255.255.0`, `24` or `0x18`; of IPv6 the
 * last two. Throws `AGENT_PROTOCOL`, for a mask with holes too.
 */
export function parseMaskLength(text: string, field = "netMask", family: Family = 4): number {
  const number = /^(?:[0-9]{1,3}|0[xX][0-9a-fA-F]{1,2})$/.test(text) ? Number(text) : undefined;
  if (number !== undefined && number <= familyBits(family)) return number;
  if (family === 4)
    for (let length = 0; length <= 32; length++) if (dottedMask(length) === text) return length;
  throw malformed(`"${field}" is not a netmask`, field);
}

const parseAddress = asText(parseIp);

function addressFrom(text: string, mask: string, path: string): AddressSetup {
  const remove = text.startsWith("-");
  const address = parseAddress(remove ? text.slice(1) : text, path);
  return { address, length: parseMaskLength(mask, path, familyOf(address)), remove };
}

const asAddress: ParseValue<AddressSetup> = (value, path) =>
  asObject((fields) =>
    addressFrom(fields.required("ipAddress", asString), fields.required("netMask", asString), path),
  )(value, path);

/** An empty name counts as none. */
const asName: ParseValue<string | undefined> = (value, path) => asString(value, path) || undefined;

/** A name that a link is to get; an empty one counts as none. */
const asNewName: ParseValue<string | undefined> = (value, path) =>
  value === "" ? undefined : asText(parseIfName)(value, path);

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
    ...given("newName", fields.optional("newDeviceName", asNewName)),
    addresses,
    ...given("mtu", mtu === 0 ? undefined : mtu),
  };
}

export const asInterface = asObject(readInterface);

/**
 * Payload of SETUPINTERFACE and DELETEINTERFACE (which uses `device` alone). Throws
 * `AGENT_PROTOCOL`.
 */
export const parseInterfaceSetup = (payload: Uint8Array): InterfaceSetup =>
  parseObject(payload, readInterface);

const defaultDestinations: readonly string[] = ["0.0.0.0/0", "default", "any", "all"];

/**
 * hyperstart's destinations: the default's spellings (of IPv6 when its gateway is), `a.b.c.d/len`,
 * `a.b.c.d/mask`, or one host.
 */
export function parseDestination(text: string, field = "dest", gateway?: Ip): Cidr {
  if (defaultDestinations.includes(text))
    return (gateway?.includes(":") === true && text !== "0.0.0.0/0" ? "::/0" : "0.0.0.0/0") as Cidr;
  const slash = text.indexOf("/");
  const ip = parseAddress(slash < 0 ? text : text.slice(0, slash), field);
  const family = familyOf(ip);
  const length =
    slash < 0 ? familyBits(family) : parseMaskLength(text.slice(slash + 1), field, family);
  const network = networkOf(withLength(ip, length));
  // The kernel refuses host bits (EINVAL); hyperstart never reads its answer and says ACK.
  if (ipOf(network) !== ip) throw malformed(`"${field}" has host bits set`, field);
  return network;
}

export const asRoute: ParseValue<RouteSetup> = asObject((fields) => {
  const gateway = fields.optional("gateway", parseAddress);
  const destination = fields.required("dest", (value, path) =>
    parseDestination(asString(value, path), path, gateway),
  );
  if (gateway !== undefined && familyOf(gateway) !== familyOf(destination))
    throw malformed(`"${fields.at("gateway")}" is of the other family`, fields.at("gateway"));
  return {
    destination,
    ...given("gateway", gateway),
    ...given("device", fields.optional("device", asName)),
  };
});

/**
 * Payload of SETUPROUTE; `{}` and an empty list are valid and do nothing. Throws `AGENT_PROTOCOL`.
 */
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
    netMask: familyOf(a.address) === 4 ? dottedMask(a.length) : `${a.length}`,
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
