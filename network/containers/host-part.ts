import { ipOf } from "../../core/address.ts";
import type { AttachedFragment } from "../model/desired.ts";
import { attachmentIfb } from "../model/ownership.ts";
import type { AttachmentFragment } from "./desired.ts";

/**
 * An attachment's state on the host in addition to its links: a port like a pod's, with the rules
 * for its published ports. An attachment without published ports waits for no rules here: the rules
 * of `ruledPart` are written for many at once.
 */
export const hostPart = (fragment: AttachmentFragment): AttachedFragment =>
  fragment.published === undefined ? portPart(fragment) : ruledPart(fragment);

/**
 * The host's part with all of its rules: a container takes what others on this host translate to
 * it.
 */
export const ruledPart = (fragment: AttachmentFragment): AttachedFragment => ({
  ...portPart(fragment),
  published: fragment.published ?? [],
  translated: fragment.addresses.map(ipOf),
  ...(fragment.loopback === undefined ? {} : { loopback: fragment.loopback }),
});

const portPart = (fragment: AttachmentFragment): AttachedFragment => {
  const { key, hostLink, bridge, mac, addresses, alias, isolated, mtu } = fragment;
  const { vlan, foreign, withdrawn, later, rates } = fragment;
  // Until later plugins are done, and for good where the caller makes the link.
  const macMayChange = fragment.awaitsPlugins ?? fragment.madeByCaller;
  return {
    kind: "attachment",
    key,
    ports: [
      {
        tap: hostLink,
        bridge,
        guestMac: mac,
        guestAddresses: addresses,
        alias,
        isolated,
        mtu,
        ...(vlan === undefined ? {} : { vlan }),
        ...(foreign === undefined ? {} : { foreign }),
        // (A machine on a macvtap keeps the planned one.)
        ...(later?.mac === undefined ? {} : { otherMacs: [later.mac] }),
        ...(macMayChange === undefined ? {} : { macMayChange }),
        ifb: attachmentIfb(key),
        ...(rates === undefined ? {} : { rates }),
      },
    ],
    ...(withdrawn === undefined ? {} : { withdrawn }),
  };
};
