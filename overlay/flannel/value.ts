import { familyOf, type Ipv4, type Ipv6, type Mac, parseIp, parseMac } from "../../core/address.ts";
import { assertNever } from "../../core/brand.ts";
import type { BackendType } from "./backend.ts";
import { readable } from "./config.ts";
import { type Fields, fieldsOf, goJson, jsonOf } from "./json.ts";

/** A parsed lease value. The backend's part is parsed by the code of that backend. */
export interface LeaseValue {
  /** Undefined for 0.0.0.0, which hosts without IPv4 write. */
  readonly publicIp: Ipv4 | undefined;
  readonly publicIp6: Ipv6 | undefined;
  /** "" for udp and alloc, which write no type. */
  readonly backendType: string;
  readonly backendData: unknown;
  readonly backendV6Data: unknown;
}

interface VxlanData {
  /** Undefined in the values of flannel 0.12. */
  readonly vni: number | undefined;
  readonly mac: Mac;
}

interface WireguardData {
  readonly publicKey: string;
  readonly port: number;
}

/** The data about a host for other hosts, by backend. */
export type BackendAttributes =
  | {
      readonly type: "vxlan";
      readonly v4: VxlanData | undefined;
      readonly v6: VxlanData | undefined;
    }
  | {
      readonly type: "wireguard";
      readonly v4: WireguardData | undefined;
      readonly v6: WireguardData | undefined;
    }
  /** `output`: the output of the command before the start, if there is one. */
  | { readonly type: "extension"; readonly output: string | undefined }
  | { readonly type: Exclude<BackendType, "vxlan" | "wireguard" | "extension"> };

const unspecified = "0.0.0.0";

/** A lease's value, byte for byte as flannel writes it. */
export function leaseValue(
  publicIp: Ipv4 | undefined,
  publicIp6: Ipv6 | undefined,
  attributes: BackendAttributes,
): string {
  const { type, v4, v6 } = wireData(attributes);
  return goJson({
    PublicIP: publicIp ?? unspecified,
    PublicIPv6: publicIp6 ?? null,
    BackendType: type,
    BackendData: v4,
    BackendV6Data: v6,
  });
}

/** A backend's type and data as JSON has them; undefined is not written. */
interface WireData {
  readonly type: string | undefined;
  readonly v4?: unknown;
  readonly v6?: unknown;
}

/** What flannel writes of a backend. */
export function wireData(attributes: BackendAttributes): WireData {
  switch (attributes.type) {
    case "vxlan": {
      const data = (of: VxlanData | undefined): unknown => of && { VNI: of.vni, VtepMAC: of.mac };
      return { type: "vxlan", v4: data(attributes.v4), v6: data(attributes.v6) };
    }
    case "wireguard": {
      const data = (of: WireguardData | undefined): unknown =>
        of && { PublicKey: of.publicKey, Port: of.port };
      return { type: "wireguard", v4: data(attributes.v4), v6: data(attributes.v6) };
    }
    case "extension":
      return { type: "extension", v4: attributes.output };
    case "host-gw":
    case "ipip":
    case "ipsec":
      return { type: attributes.type };
    case "udp":
    case "alloc":
      return { type: undefined };
    default:
      return assertNever(attributes);
  }
}

/**
 * Reads a lease's value, old or new; undefined when flannel could not. Fields it does not know are
 * passed over.
 */
export function parseLeaseValue(text: string): LeaseValue | undefined {
  const fields = fieldsOf(jsonOf(text));
  if (fields === undefined) return undefined;
  const publicIp = addressIn(fields, "publicip", 4);
  const publicIp6 = addressIn(fields, "publicipv6", 6);
  const backendType = fields.get("backendtype") ?? "";
  if (publicIp === undefined || publicIp6 === undefined || typeof backendType !== "string")
    return undefined;
  return {
    publicIp: (publicIp ?? undefined) as Ipv4 | undefined,
    publicIp6: (publicIp6 ?? undefined) as Ipv6 | undefined,
    backendType,
    backendData: fields.get("backenddata"),
    backendV6Data: fields.get("backendv6data"),
  };
}

/** Undefined if it is not readable, null if there is none. */
function addressIn(fields: Fields, name: string, family: 4 | 6): string | null | undefined {
  const text = fields.get(name) ?? unspecified;
  if (typeof text !== "string") return undefined;
  if (text === unspecified) return null;
  const ip = readable(() => parseIp(text));
  return ip !== undefined && familyOf(ip) === family ? ip : undefined;
}

/**
 * The data of a peer's backend; undefined if the backend is unknown, or the data are not readable.
 */
export function attributesOf(value: LeaseValue): BackendAttributes | undefined {
  const { backendData: data, backendV6Data: v6Data } = value;
  switch (value.backendType.toLowerCase()) {
    case "vxlan": {
      const v4 = vxlanOf(data);
      const v6 = vxlanOf(v6Data);
      return v4 === "broken" || v6 === "broken" ? undefined : { type: "vxlan", v4, v6 };
    }
    case "wireguard": {
      const v4 = wireguardOf(data);
      const v6 = wireguardOf(v6Data);
      return v4 === "broken" || v6 === "broken" ? undefined : { type: "wireguard", v4, v6 };
    }
    case "extension":
      return data === undefined || typeof data === "string"
        ? { type: "extension", output: data }
        : undefined;
    case "host-gw":
      return { type: "host-gw" };
    case "ipip":
      return { type: "ipip" };
    case "ipsec":
      return { type: "ipsec" };
    // Neither udp nor alloc writes its type, and a host that only has a reservation has no data
    // yet.
    case "":
    case "udp":
      return { type: "udp" };
    case "alloc":
      return { type: "alloc" };
    default:
      return undefined;
  }
}

function vxlanOf(data: unknown): VxlanData | undefined | "broken" {
  if (data === undefined) return undefined;
  const fields = fieldsOf(data);
  const mac = fields?.get("vtepmac");
  const vni = fields?.get("vni");
  if (typeof mac !== "string") return "broken";
  if (vni !== undefined && !isWhole(vni, 0xff_ffff)) return "broken";
  const parsed = readable(() => parseMac(mac));
  // (JSON has a -0, which is no other number.)
  return parsed === undefined ? "broken" : { vni: vni === undefined ? vni : vni + 0, mac: parsed };
}

/** 32 bytes in base 64. */
const wireguardKey = /^[A-Za-z0-9+/]{43}=$/;

function wireguardOf(data: unknown): WireguardData | undefined | "broken" {
  if (data === undefined) return undefined;
  const fields = fieldsOf(data);
  const publicKey = fields?.get("publickey");
  const port = fields?.get("port");
  if (typeof publicKey !== "string" || !wireguardKey.test(publicKey)) return "broken";
  return isWhole(port, 65_535) ? { publicKey, port: port + 0 } : "broken";
}

const isWhole = (value: unknown, most: number): value is number =>
  typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= most;
