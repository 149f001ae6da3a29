/** Numbers of rtnetlink messages and groups: include/uapi/linux/rtnetlink.h (Linux 6.1). */
export const RTM_NEWLINK = 16;
export const RTM_DELLINK = 17;
export const RTM_GETLINK = 18;
export const RTM_SETLINK = 19;
export const RTM_NEWADDR = 20;
export const RTM_DELADDR = 21;
export const RTM_GETADDR = 22;
export const RTM_NEWROUTE = 24;
export const RTM_DELROUTE = 25;
export const RTM_GETROUTE = 26;
export const RTM_NEWNEIGH = 28;
export const RTM_DELNEIGH = 29;
export const RTM_GETNEIGH = 30;
export const RTM_NEWQDISC = 36;
export const RTM_DELQDISC = 37;
export const RTM_GETQDISC = 38;
export const RTM_NEWTFILTER = 44;
export const RTM_DELTFILTER = 45;
export const RTM_GETTFILTER = 46;
export const RTM_GETNSID = 90;
export const RTM_NEWLINKPROP = 108;
export const RTM_DELLINKPROP = 109;
export const RTM_GETVLAN = 114;

/** Address families: include/linux/socket.h. */
export const AF_INET = 2;
export const AF_BRIDGE = 7;
export const AF_INET6 = 10;

/** Multicast groups an event socket can join. */
export const eventGroups = {
  link: 1,
  /** Neighbours, and the forwarding databases of bridges and VXLANs. */
  neighbour: 3,
  /** Queues and filters. */
  trafficControl: 4,
  address4: 5,
  route4: 7,
  address6: 9,
  route6: 11,
} as const;

export type EventGroup = keyof typeof eventGroups;
