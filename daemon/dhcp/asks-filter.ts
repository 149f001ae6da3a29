import { type FilterLine, PACKET_OUTGOING } from "../../linux/packets/packet-filter.ts";
import { etherTypes, icmp6, ports, protocols } from "./packets.ts";

const none = "none";

/**
 * Takes what `parseAsk` reads, of what comes in: not what goes out to the guest, which is what
 * others said. Nothing that has a VLAN tag, or is a fragment, is a client's.
 */
export const asksFilter: readonly FilterLine[] = [
  { load: "byte", at: "packetType" },
  { differs: PACKET_OUTGOING, else: none },
  { load: "byte", at: "vlanTag" },
  { equals: 0, else: none },
  { load: "half", at: 12 },
  { differs: etherTypes.arp, else: "whole" },
  { equals: etherTypes.ipv4, else: "not 4" },
  { load: "byte", at: 23 },
  { equals: protocols.udp, else: none },
  { load: "half", at: 20 },
  { lacks: 0x1fff, else: none },
  { load: "half", afterIpv4: 2 },
  { equals: ports.server4, else: none },
  { goto: "whole" },
  { label: "not 4" },
  { equals: etherTypes.ipv6, else: none },
  { load: "byte", at: 20 },
  { equals: protocols.udp, else: "not udp" },
  { load: "half", at: 56 },
  { equals: ports.server6, else: none },
  { goto: "whole" },
  { label: "not udp" },
  { equals: protocols.icmp6, else: none },
  { load: "byte", at: 54 },
  { differs: icmp6.routerSolicitation, else: "whole" },
  { equals: icmp6.neighbourSolicitation, else: none },
  { label: "whole" },
  { take: 0xffff },
  { label: none },
  { take: 0 },
];
