/** RTA_*, RTAX_*, RTN_*, RTNH_F_*: include/uapi/linux/rtnetlink.h (Linux 6.1). */
export const RTA_DST = 1;
export const RTA_OIF = 4;
export const RTA_GATEWAY = 5;
export const RTA_PRIORITY = 6;
export const RTA_PREFSRC = 7;
export const RTA_METRICS = 8;
export const RTA_MULTIPATH = 9;
export const RTA_TABLE = 15;
export const RTA_VIA = 18;

export const RTAX_MTU = 2;
export const RTAX_ADVMSS = 8;

export const RTNH_F_DEAD = 1;
export const RTNH_F_ONLINK = 4;
export const RTNH_F_LINKDOWN = 16;

/** Routing table `main`. */
export const RT_TABLE_MAIN = 254;

const types = [
  "unspec",
  "unicast",
  "local",
  "broadcast",
  "anycast",
  "multicast",
  "blackhole",
  "unreachable",
  "prohibit",
  "throw",
] as const;

/** Handling of packets; unknown numbers stay numbers. */
export type RouteType = (typeof types)[number] | number;

export const routeTypeName = (value: number): RouteType => types[value] ?? value;
export const routeTypeNumber = (type: RouteType): number =>
  typeof type === "number" ? type : types.indexOf(type);
