/**
 * IFLA_* and IFLA_INFO_*: include/uapi/linux/if_link.h (Linux 6.1). Flags: include/uapi/linux/if.h.
 */
export const IFLA_ADDRESS = 1;
export const IFLA_IFNAME = 3;
export const IFLA_MTU = 4;
export const IFLA_LINK = 5;
export const IFLA_QDISC = 6;
export const IFLA_MASTER = 10;
export const IFLA_PROTINFO = 12;
export const IFLA_OPERSTATE = 16;
export const IFLA_LINKINFO = 18;
export const IFLA_IFALIAS = 20;
export const IFLA_STATS64 = 23;
export const IFLA_AF_SPEC = 26;
export const IFLA_GROUP = 27;
export const IFLA_NET_NS_FD = 28;
export const IFLA_EXT_MASK = 29;
export const IFLA_LINK_NETNSID = 37;
export const IFLA_MIN_MTU = 50;
export const IFLA_MAX_MTU = 51;
export const IFLA_PROP_LIST = 52;
export const IFLA_ALT_IFNAME = 53;

export const IFLA_INFO_KIND = 1;
export const IFLA_INFO_DATA = 2;
export const IFLA_INFO_SLAVE_KIND = 4;
export const IFLA_INFO_SLAVE_DATA = 5;

/** Of AF_INET6 in IFLA_AF_SPEC. */
export const IFLA_INET6_ADDR_GEN_MODE = 8;
export const IN6_ADDR_GEN_MODE_NONE = 1;

/** include/uapi/linux/veth.h */
export const VETH_INFO_PEER = 1;

/** Leaves the 200 bytes of statistics per link out of dumps. */
export const RTEXT_FILTER_SKIP_STATS = 8;

export const IFF_UP = 0x1;
export const IFF_LOOPBACK = 0x8;
export const IFF_RUNNING = 0x40;
export const IFF_NOARP = 0x80;
export const IFF_LOWER_UP = 0x10000;
