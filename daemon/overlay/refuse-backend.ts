import { existsSync } from "node:fs";
import { PodnetError } from "../../core/errors.ts";
import { kernelHasLinkKind, kernelHasXfrm } from "../../linux/kernel-features.ts";
import type { Backend, BackendType } from "../../overlay/flannel/backend.ts";

/** What the host is asked. */
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

/** Where distributions keep strongSwan's daemon. */
const charonPaths = [
  "/usr/lib/ipsec/charon",
  "/usr/libexec/ipsec/charon",
  "/usr/lib/strongswan/charon",
  "/usr/libexec/strongswan/charon",
] as const;

/** What a backend lacks here; nothing when it can be used. */
type Lacks = readonly string[];

/** That of which podnet has no more than texts (`wouldMake`): no kernel here could show it at work. */
const notMade = "a podnet that makes it";

const lacking = {
  vxlan: async ({ hasLinkKind }) => ((await hasLinkKind("vxlan")) ? [] : ["vxlan in the kernel"]),
  "host-gw": () => [],
  udp: () => [],
  alloc: () => [],
  extension: (_, allowed) =>
    allowed ? [] : ["overlay.extension = true in podnetd's configuration"],
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
  Record<BackendType, (needs: BackendNeeds, extension: boolean) => Lacks | Promise<Lacks>>
>;

/**
 * Why this host cannot take part by a backend: an `UNSUPPORTED` that names all that is missing; undefined when it can. `extension`:
 * whether podnetd's own configuration lets etcd's name commands. Throws `NETLINK_FAILED`, `SYSCALL_FAILED`.
 */
export async function refuseBackend(
  { type }: Pick<Backend, "type">,
  extension: boolean,
  needs: BackendNeeds = thisHost,
): Promise<PodnetError | undefined> {
  const missing = await lacking[type](needs, extension);
  if (missing.length === 0) return undefined;
  return new PodnetError(
    "UNSUPPORTED",
    `The overlay's backend "${type}" cannot be used on this host`,
    {
      field: "Backend.Type",
      hint:
        type === "extension"
          ? "Its commands run with podnetd's rights: allow them if you trust whoever writes to etcd"
          : "Configure vxlan, host-gw or udp in etcd",
      details: { backend: type, missing: missing.join("; ") },
    },
  );
}
