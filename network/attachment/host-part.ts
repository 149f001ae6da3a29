import type { AttachedFragment } from "../desired.ts";
import type { AttachmentFragment } from "./desired.ts";

/** What an attachment has of the host beside its links: a port as a pod's, with the rules for what is published. */
export const hostPart = (fragment: AttachmentFragment): AttachedFragment => {
  const { key, hostLink, bridge, mac, addresses, alias, isolated, mtu } = fragment;
  const { vlan, foreign, published, withdrawn } = fragment;
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
      },
    ],
    ...(published === undefined ? {} : { published }),
    ...(withdrawn === undefined ? {} : { withdrawn }),
  };
};
