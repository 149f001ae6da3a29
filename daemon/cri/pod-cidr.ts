import { type Cidr, contains, familyOf, ipOf, lengthOf, parseCidr } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";

/**
 * Checks that pods get addresses of their node's subnets in Kubernetes, written with a comma
 * between two families. Empty: Kubernetes gives the node none. Throws `WRONG_STATE` when the
 * default network lies elsewhere, `INVALID_ARGUMENT`.
 */
export function checkPodCidr(text: string, subnets: readonly { readonly cidr: Cidr }[]): void {
  if (text === "") return;
  const field = "runtime_config.network_config.pod_cidr";
  const asked = text.split(",").map((each) => parseCidr(each.trim(), field));
  for (const { cidr } of subnets) {
    const ofFamily = asked.filter((each) => familyOf(each) === familyOf(cidr));
    if (ofFamily.length === 0 || ofFamily.some((each) => isWithin(cidr, each))) continue;
    throw new PodnetError(
      "WRONG_STATE",
      `The default network has ${cidr}, which is not in the node's ${ofFamily.join()}`,
      {
        field,
        hint: "Set network.cidr and network.cidr6 of podnetd to the node's podCIDRs, and start it again",
      },
    );
  }
}

const isWithin = (inner: Cidr, outer: Cidr): boolean =>
  lengthOf(inner) >= lengthOf(outer) && contains(outer, ipOf(inner));
