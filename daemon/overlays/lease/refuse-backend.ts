import { existsSync } from "node:fs";
import { PodnetError } from "../../../core/errors.ts";
import { kernelHasLinkKind, kernelHasXfrm } from "../../../linux/kernel-features.ts";
import type { BackendType } from "../../../overlay/flannel/backend.ts";

/** The queries about the host. */
export interface BackendNeeds {
  readonly hasLinkKind: (kind: string) => Promise<boolean>;
  readonly hasXfrm: () => boolean;
  readonly hasFile: (path: string) => boolean;
}

const thisHost: BackendNeeds = {
  hasLinkKind: kernelHasLinkKind,
  hasXfrm: kernelHasXfrm,
  hasFile: existsSync,
};

/** The paths at which distributions install strongSwan's daemon. */
const charonPaths = [
  "/usr/lib/ipsec/charon",
  "/usr/libexec/ipsec/charon",
  "/usr/lib/strongswan/charon",
  "/usr/libexec/strongswan/charon",
] as const;

/** The intended use of the backend. */
export interface BackendUse {
  readonly type: BackendType;
  /** Whether the overlay has IPv6. */
  readonly v6: boolean;
  /** Whether podnetd's own configuration lets etcd's name commands. */
  readonly extension: boolean;
}

/** The requirements of a backend that are missing here; empty if it can be used. */
type Lacks = readonly string[];

/**
 * That of which podnet has no more than texts (`wouldMake`): no kernel here could show it at work.
 */
const notMade = "a podnet that makes it";
const noIpv6 = "a way for IPv6, which the overlay has and its tunnel does not carry";

const lacking = {
  vxlan: async ({ hasLinkKind }) => ((await hasLinkKind("vxlan")) ? [] : ["vxlan in the kernel"]),
  "host-gw": () => [],
  // (flannel has no IPv6 by it either: a datagram is an IPv4 packet.)
  udp: (_, { v6 }) => (v6 ? [noIpv6] : []),
  alloc: () => [],
  extension: (_, { extension }) =>
    extension ? [] : ["overlay.extension = true in podnetd's configuration"],
  wireguard: async ({ hasLinkKind }) => [
    ...((await hasLinkKind("wireguard")) ? [] : ["wireguard in the kernel (CONFIG_WIREGUARD)"]),
    notMade,
  ],
  ipip: async ({ hasLinkKind }) => [
    ...((await hasLinkKind("ipip")) ? [] : ["ipip in the kernel (CONFIG_NET_IPIP)"]),
    notMade,
  ],
  ipsec: ({ hasXfrm, hasFile }) => [
    ...(hasXfrm() ? [] : ["xfrm in the kernel (CONFIG_XFRM_USER)"]),
    ...(charonPaths.some(hasFile) ? [] : ["strongSwan's charon"]),
    notMade,
  ],
} satisfies Readonly<
  Record<BackendType, (needs: BackendNeeds, use: BackendUse) => Lacks | Promise<Lacks>>
>;

const advice: Readonly<Partial<Record<BackendType, string>>> = {
  extension:
    "Its commands run with podnetd's rights: allow them if you trust whoever writes to etcd",
  udp: "Configure vxlan or host-gw in etcd, or no IPv6",
};

/**
 * Why this host cannot take part by a backend: an `UNSUPPORTED` that names all that is missing;
 * undefined when it can. Throws `NETLINK_FAILED`, `SYSCALL_FAILED`.
 */
export async function refuseBackend(
  use: BackendUse,
  needs: BackendNeeds = thisHost,
): Promise<PodnetError | undefined> {
  const { type } = use;
  const missing = await lacking[type](needs, use);
  if (missing.length === 0) return undefined;
  return new PodnetError(
    "UNSUPPORTED",
    `The overlay's backend "${type}" cannot be used on this host`,
    {
      field: "Backend.Type",
      hint: advice[type] ?? "Configure vxlan, host-gw or udp in etcd",
      details: { backend: type, missing: missing.join("; ") },
    },
  );
}
