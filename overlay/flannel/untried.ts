import { type Cidr, type Family, familyOf, type Ip, ipOf } from "../../core/address.ts";
import { assertNever } from "../../core/brand.ts";
import type { Backend } from "./backend.ts";
import type { Subnets } from "./key.ts";
import type { BackendAttributes } from "./value.ts";

/**
 * Backends of which podnet says what they would make, and makes nothing: no kernel it has been on
 * has them.
 */
export type UntriedBackend = Extract<Backend, { type: "ipip" | "wireguard" | "ipsec" }>;

/** This host or another, as far as it matters. */
export interface UntriedHost {
  readonly subnets: Subnets;
  readonly publicIp: Ip | undefined;
  readonly publicIp6: Ip | undefined;
  readonly attributes: BackendAttributes;
}

export interface Untried {
  readonly networks: { readonly v4: Cidr | undefined; readonly v6: Cidr | undefined };
  /** The link by which the others are reached, and what it carries. */
  readonly parent: string;
  readonly parentMtu: number;
  readonly own: UntriedHost;
  readonly peers: readonly UntriedHost[];
  /** Whether a host is on a link of this one's. */
  readonly isDirect: (ip: Ip) => boolean;
}

/** What packets get longer by. */
const overhead = { ipip: 20, wireguard: 80, ipsec: 77, udpEncapsulation: 8 } as const;
/** By what flannel's ipsec knows its policies. */
const reqid = 11;

/** What pods of the overlay can send. */
export function untriedMtu(backend: UntriedBackend, parentMtu: number): number {
  switch (backend.type) {
    case "ipip":
      return parentMtu - overhead.ipip;
    case "wireguard":
      return (backend.mtu ?? parentMtu) - overhead.wireguard;
    case "ipsec":
      return parentMtu - overhead.ipsec - (backend.udpEncap ? overhead.udpEncapsulation : 0);
    default:
      return assertNever(backend);
  }
}

/**
 * What a backend would make on this host as flannel does, in the words of `ip`, `wg` and
 * swanctl.conf; without keys. Written from what is known of flannel, and never seen at work:
 * nothing is made of it.
 */
export function untriedText(backend: UntriedBackend, untried: Untried): readonly string[] {
  switch (backend.type) {
    case "ipip":
      return ipip(backend, untried);
    case "wireguard":
      return wireguard(backend, untried);
    case "ipsec":
      return ipsec(backend, untried);
    default:
      return assertNever(backend);
  }
}

const base = (subnet: Cidr): string => `${ipOf(subnet)}/${familyOf(subnet) === 4 ? 32 : 128}`;

/** IPv4 alone. */
function ipip(backend: UntriedBackend & { type: "ipip" }, untried: Untried): string[] {
  const { own, parent, peers, isDirect } = untried;
  const { v4 } = own.subnets;
  if (v4 === undefined || own.publicIp === undefined) return [];
  const mtu = untriedMtu(backend, untried.parentMtu);
  const device = "flannel.ipip";
  return [
    `link add ${device} type ipip local ${own.publicIp} dev ${parent} mtu ${mtu}`,
    `address add ${base(v4)} dev ${device}`,
    ...peers.flatMap(({ subnets, publicIp }) => {
      if (subnets.v4 === undefined || publicIp === undefined) return [];
      const direct = backend.directRouting && isDirect(publicIp);
      const way = direct ? `dev ${parent}` : `dev ${device} onlink`;
      return [`route replace ${subnets.v4} via ${publicIp} ${way}`];
    }),
  ];
}

interface WireguardDevice {
  readonly name: string;
  readonly port: number;
  /** Of the addresses that peers are reached by. */
  readonly outer: Family;
  /** Whose pods it is for. */
  readonly inner: readonly Family[];
}

/** A device for each family, or one for both that goes by either. */
function wireguardDevices(
  backend: UntriedBackend & { type: "wireguard" },
  { networks, own }: Untried,
): WireguardDevice[] {
  const { mode, listenPort, listenPortV6 } = backend;
  const families: Family[] = [
    ...(networks.v4 === undefined ? [] : [4 as const]),
    ...(networks.v6 === undefined ? [] : [6 as const]),
  ];
  if (mode === "separate")
    return families.map((family) =>
      family === 4
        ? { name: "flannel-wg", port: listenPort, outer: 4, inner: [4] }
        : { name: "flannel-wg-v6", port: listenPortV6, outer: 6, inner: [6] },
    );
  const four = mode === "ipv4" || (mode === "auto" && own.publicIp !== undefined);
  return [{ name: "flannel-wg", port: listenPort, outer: four ? 4 : 6, inner: families }];
}

function wireguard(backend: UntriedBackend & { type: "wireguard" }, untried: Untried): string[] {
  const { networks, own, peers, parentMtu } = untried;
  const mtu = untriedMtu(backend, parentMtu);
  return wireguardDevices(backend, untried).flatMap(({ name, port, outer, inner }) => {
    const subnetsOf = ({ subnets }: UntriedHost): Cidr[] =>
      inner.flatMap((family) => (family === 4 ? subnets.v4 : subnets.v6) ?? []);
    return [
      `link add ${name} type wireguard mtu ${mtu}`,
      ...subnetsOf(own).map((subnet) => `address add ${base(subnet)} dev ${name}`),
      `wg set ${name} listen-port ${port} private-key /run/flannel/wgkey`,
      ...peers.flatMap((peer) => {
        const { attributes, publicIp, publicIp6 } = peer;
        const data =
          attributes.type !== "wireguard"
            ? undefined
            : outer === 4 || backend.mode !== "separate"
              ? attributes.v4
              : attributes.v6;
        const endpoint = outer === 4 ? publicIp : publicIp6 && `[${publicIp6}]`;
        if (data === undefined || endpoint === undefined) return [];
        const options = [
          ...(backend.psk === "" ? [] : ["preshared-key (hidden)"]),
          `endpoint ${endpoint}:${data.port}`,
          ...(backend.keepaliveSeconds === 0
            ? []
            : [`persistent-keepalive ${backend.keepaliveSeconds}`]),
          `allowed-ips ${subnetsOf(peer).join(",")}`,
        ];
        return [`wg set ${name} peer ${data.publicKey} ${options.join(" ")}`];
      }),
      ...inner.map(
        (family) => `route replace ${family === 4 ? networks.v4 : networks.v6} dev ${name}`,
      ),
    ];
  });
}

/** IPv4 alone: for each peer three policies, and the connection that charon is reported by vici. */
function ipsec(backend: UntriedBackend & { type: "ipsec" }, { own, peers }: Untried): string[] {
  const local = own.subnets.v4;
  const localIp = own.publicIp;
  if (local === undefined || localIp === undefined) return [];
  return peers.flatMap(({ subnets, publicIp }) => {
    const remote = subnets.v4;
    if (remote === undefined || publicIp === undefined) return [];
    const policy = (dir: string, from: readonly [Cidr, Ip], to: readonly [Cidr, Ip]): string =>
      `xfrm policy update src ${from[0]} dst ${to[0]} dir ${dir} tmpl src ${from[1]} dst ${to[1]} proto esp reqid ${reqid} mode tunnel`;
    const here = [local, localIp] as const;
    const there = [remote, publicIp] as const;
    return [
      policy("out", here, there),
      policy("in", there, here),
      policy("fwd", there, here),
      `vici load-shared { type = IKE; data = (hidden); owners = [${publicIp}] }`,
      `vici load-conn { ${local}-${remote} { version = 2; local_addrs = [${localIp}]; remote_addrs = [${publicIp}]; ` +
        `encap = ${backend.udpEncap ? "yes" : "no"}; keyingtries = 0; local { auth = psk }; remote { auth = psk }; ` +
        `children { ${local}-${remote} { mode = tunnel; reqid = ${reqid}; policies = no; start_action = start; ` +
        `local_ts = [${local}]; remote_ts = [${remote}]; esp_proposals = [${backend.espProposal}] } } } }`,
    ];
  });
}
