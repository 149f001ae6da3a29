import { type Net, addressIn, masked, netText, parseIp, parseNet, sizeOf } from "./flannel-net.ts";

/** What stands in etcd under PREFIX/config, checked by flannel's rules. */
export interface FlannelConfig {
  /** One for each family that is on. */
  readonly families: readonly FamilyConfig[];
  /** In lower case. */
  readonly backend: string;
  readonly vni: number;
  /** 0: the kernel's own. */
  readonly port: number;
  readonly mtu: number | undefined;
  readonly directRouting: boolean;
}

export interface FamilyConfig {
  readonly network: Net;
  readonly subnetLength: number;
  /** First address of the lowest subnet, and of the highest. */
  readonly min: bigint;
  readonly max: bigint;
}

/** A lease's subnets; v6-only has `v4` of length 0. */
export interface Subnets {
  readonly v4?: Net;
  readonly v6?: Net;
}

/** In the order of a lease's value. */
export interface Attributes {
  readonly publicIp: string;
  readonly publicIp6: string | undefined;
  readonly backendType: string | undefined;
  readonly data?: unknown;
  readonly data6?: unknown;
}

type Fields = Readonly<Record<string, unknown>>;

/** Go matches keys of JSON without regard to case. */
function field(object: unknown, name: string): unknown {
  const entries = Object.entries((object ?? {}) as Fields);
  return entries.find(([key]) => key.toLowerCase() === name.toLowerCase())?.[1];
}

/** A field that is to be text. */
function textOf(object: unknown, name: string): string | undefined {
  const value = field(object, name);
  if (value !== undefined && typeof value !== "string") throw new Error(`${name} is no text`);
  return value;
}

function family(config: Fields, version: 4 | 6): FamilyConfig {
  const [start, most, usual, roomy] = version === 4 ? ["", 30, 24, 22] : ["IPv6", 126, 64, 62];
  const given = textOf(config, `${start}Network`) ?? "";
  const network = parseNet(given);
  if (network?.family !== version) throw new Error(`${start}Network is no range: ${given}`);
  if (network.length > most - 2) throw new Error(`${start}Network is too small: ${given}`);
  const asked = Number(field(config, `${start}SubnetLen`) ?? 0);
  const subnetLength = asked || (network.length <= roomy ? usual : network.length + 2);
  if (subnetLength > most || subnetLength < network.length + 2)
    throw new Error(`${start}SubnetLen does not fit: ${subnetLength}`);
  const size = sizeOf({ family: version, length: subnetLength });
  const bound = (name: string, usually: bigint): bigint => {
    const text = textOf(config, `${start}${name}`);
    if (text === undefined) return usually;
    const ip = parseIp(text);
    if (ip?.family !== version || ip.base % size !== 0n || ip.base < network.base)
      throw new Error(`${start}${name} is no subnet of the network: ${text}`);
    if (ip.base >= network.base + sizeOf(network))
      throw new Error(`${start}${name} lies outside of the network: ${text}`);
    return ip.base;
  };
  const min = bound("SubnetMin", network.base + size);
  const max = bound("SubnetMax", network.base + sizeOf(network) - size);
  return { network, subnetLength, min, max };
}

/** Reads the configuration; throws what flannel would log. */
export function parseFlannelConfig(text: string): FlannelConfig {
  const config = JSON.parse(text) as Fields;
  const on = (name: string, usually: boolean): boolean => Boolean(field(config, name) ?? usually);
  const families = [
    ...(on("EnableIPv4", true) ? [family(config, 4)] : []),
    ...(on("EnableIPv6", false) ? [family(config, 6)] : []),
  ];
  const backend = field(config, "Backend");
  const mtu = Number(field(backend, "MTU") ?? 0);
  return {
    families,
    backend: (textOf(backend, "Type") ?? "udp").toLowerCase(),
    vni: Number(field(backend, "VNI") ?? 1),
    port: Number(field(backend, "Port") ?? 0),
    mtu: mtu === 0 ? undefined : mtu,
    directRouting: field(backend, "DirectRouting") === true,
  };
}

/** The last part of a lease's key. */
export const subnetKey = ({ v4, v6 }: Subnets): string =>
  [v4 === undefined ? "0.0.0.0-0" : netText(v4), ...(v6 === undefined ? [] : [netText(v6)])]
    .map((text) => text.replace("/", "-"))
    .join("&");

/** Of the whole key, as flannel looks at it: not anchored at its left. */
export function parseSubnetKey(key: string): Subnets | undefined {
  const found = /(\d+\.\d+\.\d+\.\d+)-(\d+)(?:&([a-f\d:]+)-(\d+))?$/.exec(key);
  if (found === null) return undefined;
  const v4 = parseNet(`${found[1]}/${found[2]}`);
  const v6 = found[3] === undefined ? undefined : parseNet(`${found[3]}/${found[4]}`);
  if (v4 === undefined || (found[3] !== undefined && v6 === undefined)) return undefined;
  return { ...(v4.length === 0 ? {} : { v4 }), ...(v6 === undefined ? {} : { v6 }) };
}

/** The value of a lease: field order, `null` and what is left out as flannel does. */
export const attributesText = (attributes: Attributes): string =>
  JSON.stringify({
    PublicIP: attributes.publicIp,
    PublicIPv6: attributes.publicIp6 ?? null,
    // (JSON.stringify leaves undefined out.)
    BackendType: attributes.backendType,
    BackendData: attributes.data,
    BackendV6Data: attributes.data6,
  });

/** Undefined for what Go's decoder would refuse. */
export function parseAttributes(text: string): Attributes | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const [publicIp, publicIp6] = [field(value, "PublicIP"), field(value, "PublicIPv6")];
  const backendType = field(value, "BackendType");
  if (typeof publicIp !== "string" || parseIp(publicIp) === undefined) return undefined;
  if (publicIp6 !== undefined && publicIp6 !== null && typeof publicIp6 !== "string")
    return undefined;
  if (backendType !== undefined && typeof backendType !== "string") return undefined;
  return {
    publicIp,
    publicIp6: publicIp6 ?? undefined,
    backendType,
    data: field(value, "BackendData"),
    data6: field(value, "BackendV6Data"),
  };
}

/** subnet.env of the lease. */
export function subnetEnv(
  config: FlannelConfig,
  subnets: Subnets,
  mtu: number,
  masquerade: boolean,
): string {
  const lines = config.families.flatMap(({ network }) => {
    const [subnet, start] =
      network.family === 4 ? [subnets.v4, "FLANNEL"] : [subnets.v6, "FLANNEL_IPV6"];
    if (subnet === undefined) return [];
    return [
      `${start}_NETWORK=${netText(network)}`,
      `${start}_SUBNET=${addressIn(subnet, 1n)}/${subnet.length}`,
    ];
  });
  return [...lines, `FLANNEL_MTU=${mtu}`, `FLANNEL_IPMASQ=${masquerade}`, ""].join("\n");
}

/** The subnets a subnet.env reports. */
export function previousSubnets(text: string): Subnets {
  const of = (name: string): Net | undefined => {
    const line = new RegExp(`^${name}=(.*)$`, "m").exec(text)?.[1];
    const net = line === undefined ? undefined : parseNet(line);
    return net === undefined ? undefined : masked(net);
  };
  const [v4, v6] = [of("FLANNEL_SUBNET"), of("FLANNEL_IPV6_SUBNET")];
  return { ...(v4 === undefined ? {} : { v4 }), ...(v6 === undefined ? {} : { v6 }) };
}
