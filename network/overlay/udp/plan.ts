import { type Cidr, type Ip, ipOf } from "../../../core/address.ts";
import type { IfName } from "../../../core/names.ts";
import type { OverlayChange } from "../change.ts";
import { type OverlayShape, sideOf } from "../../model/overlay.ts";
import type { ObservedDevice } from "../observed-device.ts";
import type { TunnelBirth, UdpTunnel } from "./tunnel.ts";

/** The name of a tunnel's device before it exists: flannel's pattern. */
export const deviceToCome = "flannel%d" as IfName;

/** The tunnel that an overlay needs; undefined if it needs none. */
export function wantedTunnel(desired: OverlayShape): TunnelBirth | undefined {
  const { backend } = desired;
  const side = sideOf(desired, 4);
  if (backend.kind !== "udp" || side === undefined) return undefined;
  return { publicIp: side.publicIp, port: backend.port, answersFrom: ipOf(side.network) };
}

/** Its device, as it is before anything was made of it. */
export const newDevice = (device: IfName): ObservedDevice => ({
  device,
  kind: "tun",
  alias: undefined,
  group: 0,
  mtu: 0,
  up: false,
  mac: undefined,
  vxlan: undefined,
  addresses: [],
});

type Hosts = ReadonlyMap<Cidr, Ip>;

/** The changes of the tunnel's destinations; empty for an overlay without a tunnel. Pure. */
export function planTunnelPeers(
  overlay: string,
  wanted: Hosts | undefined,
  observed: Hosts = new Map(),
): OverlayChange[] {
  if (wanted === undefined) return [];
  const set = [...wanted].filter(([subnet, host]) => observed.get(subnet) !== host);
  const gone = [...observed.keys()].filter((subnet) => !wanted.has(subnet));
  return [
    ...set.map(([subnet, host]) => ({ kind: "set-peer", overlay, subnet, host }) as const),
    ...gone.map((subnet) => ({ kind: "remove-peer", overlay, subnet }) as const),
  ];
}

/**
 * The changes that replace one tunnel by the other: no property of an open tunnel can be changed.
 * Pure.
 */
export function planTunnel(
  overlay: string,
  wanted: TunnelBirth | undefined,
  open: Pick<UdpTunnel, "birth" | "device" | "broken"> | undefined,
  /** Whether its device is there, under its name. */
  isThere: boolean,
): OverlayChange[] {
  const isKept =
    open !== undefined &&
    wanted !== undefined &&
    open.broken === undefined &&
    isThere &&
    open.birth.publicIp === wanted.publicIp &&
    open.birth.port === wanted.port &&
    open.birth.answersFrom === wanted.answersFrom;
  if (isKept) return [];
  return [
    ...(open === undefined
      ? []
      : [{ kind: "close-tunnel", overlay, device: open.device } as const]),
    ...(wanted === undefined ? [] : [{ kind: "open-tunnel", overlay, birth: wanted } as const]),
  ];
}
