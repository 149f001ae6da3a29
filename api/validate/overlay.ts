import {
  type Cidr,
  type Family,
  familyOf,
  type Ip,
  parseCidr,
  parseIp,
} from "../../core/address.ts";
import { parseNetworkName } from "../../core/names.ts";
import { checkCount, invalid } from "../fields.ts";
import type * as wire from "../gen/podnet/v1/overlay_service_pb.ts";

/** What a host has of an overlay: a subnet of one address family or of both. */
export type SubnetPair =
  | { readonly v4: Cidr; readonly v6: Cidr | undefined }
  | { readonly v4: undefined; readonly v6: Cidr };

export interface ReservationSpec {
  /** One of a family at most, one at least. */
  readonly publicIps: readonly Ip[];
  /** Absent: those that the host with these addresses has. */
  readonly subnets?: SubnetPair;
}

/** The overlay a call is about; undefined: the only one. */
export const validateOverlayRef = (name: string): string | undefined =>
  name === "" ? undefined : parseNetworkName(name, "overlay");

/** Checks what is to be kept for a host. */
export function validateReservation(
  request: Pick<wire.AddReservationRequest, "subnets" | "publicIps">,
): ReservationSpec {
  if (request.publicIps.length === 0)
    throw invalid("public_ips", "No host is named", "Give the address that other hosts send to");
  checkCount(request.publicIps, 2, "public_ips");
  const publicIps = request.publicIps.map((text, i) => parseIp(text, `public_ips[${i}]`));
  oneOfEach(publicIps, "public_ips");
  return request.subnets.length === 0
    ? { publicIps }
    : { publicIps, subnets: validateSubnetPair(request.subnets) };
}

/** Checks a host's subnets. */
export function validateSubnetPair(texts: readonly string[]): SubnetPair {
  checkCount(texts, 2, "subnets");
  const subnets = texts.map((text, i) => parseCidr(text, `subnets[${i}]`));
  oneOfEach(subnets, "subnets");
  const of = (family: Family) => subnets.find((subnet) => familyOf(subnet) === family);
  const [v4, v6] = [of(4), of(6)];
  if (v4 !== undefined) return { v4, v6 };
  if (v6 !== undefined) return { v4, v6 };
  throw invalid("subnets", "No subnet is named", "Give one, such as 10.5.34.0/24");
}

function oneOfEach(list: readonly (Ip | Cidr)[], field: string): void {
  const families = list.map((each) => familyOf(each));
  if (new Set(families).size < families.length)
    throw invalid(
      `${field}[1]`,
      `Both are of IPv${families[0]}`,
      "Give one of each address family at most",
    );
}
