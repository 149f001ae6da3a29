import { type Cidr, familyOf, ipOf, lengthOf, parseCidr } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { isUnroutable } from "../../core/special-addresses.ts";

/** Room for some services at least. */
const lengths = { 4: { shortest: 8, longest: 28 }, 6: { shortest: 32, longest: 124 } } as const;

/**
 * Reads the subnets of services' addresses, IPv4 first. Throws `ADDRESS_INVALID`,
 * `INVALID_ARGUMENT`.
 */
export function serviceCidrs(texts: readonly string[]): readonly Cidr[] {
  const cidrs = texts.map((text) => parseCidr(text)).toSorted((a, b) => familyOf(a) - familyOf(b));
  for (const cidr of cidrs) {
    const { shortest, longest } = lengths[familyOf(cidr)];
    if (lengthOf(cidr) < shortest || lengthOf(cidr) > longest)
      throw new PodnetError("ADDRESS_INVALID", `${cidr} is not of a usable length`, {
        hint: `Use a length of ${shortest} to ${longest}`,
      });
    if (isUnroutable(ipOf(cidr)))
      throw new PodnetError("ADDRESS_INVALID", `No packet is routed to ${cidr}`, {
        hint: "Choose a private subnet that the host does not use, such as 10.73.0.0/16",
      });
  }
  const [first, second] = cidrs;
  if (first !== undefined && second !== undefined && familyOf(first) === familyOf(second))
    throw new PodnetError("INVALID_ARGUMENT", `${first} and ${second} are of one address family`, {
      hint: "Give one subnet of each address family",
    });
  return cidrs;
}
