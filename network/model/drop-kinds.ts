/**
 * What the guard drops at a port of a guest, by kind, with the numbers by which the kernel counts
 * it. The counters outlive podnetd, so a number keeps its meaning.
 */
export const dropKinds = {
  mac: { number: 1, what: "a source MAC that is not the interface's" },
  ipv4: { number: 2, what: "a source IPv4 address that is not the interface's" },
  "arp-mac": { number: 3, what: "ARP whose sender has a MAC that is not the interface's" },
  "arp-ip": { number: 4, what: "ARP to one receiver, with an address that is not the interface's" },
  "arp-claim": {
    number: 5,
    what: "ARP to everybody that claims an address, or a probe for one, that is not the interface's (gratuitous ARP)",
  },
  ipv6: { number: 6, what: "a source IPv6 address that is not the interface's" },
  "link-local": { number: 7, what: "a link-local address that is not the interface's" },
  "nd-mac": {
    number: 8,
    what: "neighbor or router solicitations and advertisements with a MAC that is not the interface's, or with unknown options",
  },
  "nd-target": {
    number: 9,
    what: "a neighbor advertisement of, or a probe for, an address that is not the interface's",
  },
  router: { number: 10, what: "router advertisements, and redirects of both families" },
  "dhcp-server": { number: 11, what: "packets to DHCP clients, of both families" },
  "bridge-control": { number: 12, what: "frames between bridges: STP, LLDP, LACP and others" },
  ethertype: { number: 13, what: "frames that are not IPv4, IPv6, ARP or configured otherwise" },
  fragment: { number: 14, what: "fragments that hide the header of the packet" },
  "extension-header": { number: 15, what: "IPv6 extension headers that hide the packet's header" },
  "vlan-stack": { number: 16, what: "frames with more than one VLAN tag" },
  "no-ipv6": { number: 17, what: "IPv6 on a network without IPv6" },
} as const satisfies Readonly<Record<string, { readonly number: number; readonly what: string }>>;

export type DropKind = keyof typeof dropKinds;

const byNumber = new Map<number, DropKind>(
  Object.entries(dropKinds).map(([kind, { number }]) => [number, kind as DropKind]),
);

/** Undefined for a number that another version of podnet counts by. */
export const dropKindOf = (number: number): DropKind | undefined => byNumber.get(number);
