import type { Cidr, Family, Ip, Mac } from "../../../core/address.ts";
import { type IfName, parseIfName } from "../../../core/names.ts";
import {
  type OverlayBackend,
  type OverlayDesired,
  type OverlayPeer,
  type OverlayShape,
  sideFamily,
  sideOf,
  type SideShape,
} from "../../../network/model/overlay.ts";
import type { Host } from "../../../overlay/claim.ts";
import type { Backend } from "../../../overlay/flannel/backend.ts";
import type { OverlayConfig } from "../../../overlay/flannel/config.ts";
import type { Subnets } from "../../../overlay/flannel/key.ts";
import type { SubnetEnv } from "../../../overlay/flannel/subnet-env.ts";
import type { BackendAttributes } from "../../../overlay/flannel/value.ts";
import type { OwnerId } from "../../../overlay/owner.ts";
import type { Peer } from "../../../overlay/peers.ts";
import type { OverlayConfig as OverlaySettings } from "../../config/overlay.ts";
import { recordedSubnets, subnetsRecord } from "../store.ts";
import type { Uplink } from "./choose-uplink.ts";

/** The MACs by which other hosts reach this one: those of its tunnel ends, by family. */
export type Macs = Readonly<Partial<Record<Family, Mac>>>;

/** The families of an overlay, IPv4 first. */
export const familiesOf = ({ v4, v6 }: Pick<OverlayConfig, "v4" | "v6">): Family[] => [
  ...(v4 === undefined ? [] : [4 as const]),
  ...(v6 === undefined ? [] : [6 as const]),
];

/** One or two, IPv4 first. */
export const cidrsOf = ({ v4, v6 }: Subnets): Cidr[] =>
  [v4, v6].filter((subnet) => subnet !== undefined);

/**
 * The kernel's configuration for a backend; undefined if the backend does not use the kernel, or
 * podnet does not support it.
 */
export function kernelBackend(backend: Backend, txChecksum?: boolean): OverlayBackend | undefined {
  switch (backend.type) {
    case "vxlan": {
      const { vni, port, mtu, gbp, learning, directRouting } = backend;
      const rest = { vni, port, gbp, learning, directRouting };
      return {
        kind: "vxlan",
        ...rest,
        ...(mtu === undefined ? {} : { mtu }),
        ...(txChecksum === undefined ? {} : { txChecksum }),
      };
    }
    case "host-gw":
      return { kind: "host-gw" };
    case "udp":
      return { kind: "udp", port: backend.port };
    case "alloc":
    // The commands of the configuration do the work.
    case "extension":
      return { kind: "none" };
    default:
      return undefined;
  }
}

/** The data that other hosts get about this one. */
export function hostOf(
  owner: OwnerId,
  { publicIp, publicIp6 }: Uplink,
  backend: Backend,
  macs: Macs,
): Host {
  return {
    owner,
    publicIp: publicIp as Host["publicIp"],
    publicIp6: publicIp6 as Host["publicIp6"],
    attributes: attributesOf(backend, macs),
  };
}

function attributesOf(backend: Backend, macs: Macs): BackendAttributes {
  if (backend.type === "vxlan") {
    const data = (mac: Mac | undefined) => mac && { vni: backend.vni, mac };
    return { type: "vxlan", v4: data(macs[4]), v6: data(macs[6]) };
  }
  if (backend.type === "wireguard") return { type: "wireguard", v4: undefined, v6: undefined };
  if (backend.type === "extension") return { type: "extension", output: undefined };
  return { type: backend.type };
}

/** flannel's name for a VXLAN device. */
export const vtepDevice = (family: Family, vni: number): IfName =>
  parseIfName(`${family === 4 ? "flannel" : "flannel-v6"}.${vni}`);

/** The inputs of an overlay's desired state on this host. */
export interface ShapeFrom {
  readonly name: string;
  readonly settings: Pick<OverlaySettings, "masquerade" | "forward">;
  readonly config: OverlayConfig;
  readonly backend: OverlayBackend;
  readonly uplink: Uplink;
  readonly macs: Macs;
  readonly subnets: Subnets;
}

/** The desired state of an overlay on this host, without its peers. Pure. */
export function makeShape(from: ShapeFrom): OverlayShape {
  const { name, settings, config, backend, uplink, subnets } = from;
  const side = (family: Family): SideShape[] => {
    const network = (family === 4 ? config.v4 : config.v6)?.network;
    const subnet = family === 4 ? subnets.v4 : subnets.v6;
    const publicIp = backend.kind === "host-gw" ? announced(uplink, family) : own(uplink, family);
    if (network === undefined || subnet === undefined || publicIp === undefined) return [];
    const mac = from.macs[family];
    return [
      {
        network,
        subnet,
        publicIp,
        ...(backend.kind !== "vxlan"
          ? {}
          : {
              vtep: {
                device: vtepDevice(family, backend.vni),
                ...(mac === undefined ? {} : { mac }),
              },
            }),
      },
    ];
  };
  return {
    name,
    backend,
    parent: uplink.link,
    sides: [...side(4), ...side(6)],
    ...(settings.masquerade === undefined ? {} : { masquerade: settings.masquerade }),
    forward: settings.forward,
  };
}

/** The desired state of an overlay on this host, with all its peers. Pure. */
export function makeDesired(shape: OverlayShape, peers: Iterable<Peer>): OverlayDesired {
  const all = [...peers];
  const sides = shape.sides.map((side) => ({
    ...side,
    peers: all.flatMap((peer) => sidePeer(peer, sideFamily(side))),
  }));
  return { ...shape, sides };
}

/**
 * Tunnels send from the link's own address, even if other hosts send to another address (behind a
 * NAT, say).
 */
const own = (uplink: Uplink, family: Family): Ip | undefined =>
  family === 4 ? uplink.address : uplink.address6;

const announced = (uplink: Uplink, family: Family): Ip | undefined =>
  family === 4 ? uplink.publicIp : uplink.publicIp6;

/** The parsed peers: a peer is parsed once. */
const sides = new WeakMap<Peer, Partial<Record<Family, readonly OverlayPeer[]>>>();

/** A peer in one family; empty if it has no subnet of that family. */
export function sidePeer(peer: Peer, family: Family): readonly OverlayPeer[] {
  const known = sides.get(peer) ?? {};
  sides.set(peer, known);
  return (known[family] ??= makePeer(peer, family));
}

function makePeer(peer: Peer, family: Family): readonly OverlayPeer[] {
  const { subnets, attributes } = peer;
  const subnet = family === 4 ? subnets.v4 : subnets.v6;
  const publicIp: Ip | undefined = family === 4 ? peer.publicIp : peer.publicIp6;
  if (subnet === undefined || publicIp === undefined) return [];
  const data =
    attributes.type === "vxlan" ? (family === 4 ? attributes.v4 : attributes.v6) : undefined;
  return [{ subnet, publicIp, ...(data === undefined ? {} : { vtepMac: data.mac }) }];
}

/**
 * The data for programs on the host about an overlay; undefined if the overlay has no subnet here.
 */
export function subnetEnvOf(
  { sides, masquerade }: OverlayShape,
  mtu: number,
): SubnetEnv | undefined {
  const v4 = sideOf({ sides }, 4);
  const v6 = sideOf({ sides }, 6);
  const subnets = recordedSubnets({ subnets: subnetsRecord({ v4: v4?.subnet, v6: v6?.subnet }) });
  return (
    subnets && {
      networks: { v4: v4?.network, v6: v6?.network },
      subnets,
      mtu,
      masquerade: masquerade !== undefined,
    }
  );
}
