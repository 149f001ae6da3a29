import {
  type Cidr,
  contains,
  familyBits,
  ipOf,
  type IpPrefix,
  lengthOf,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { mark } from "../model/desired.ts";
import { overlayMark, parseOwner } from "../model/ownership.ts";
import type { OverlayChange, VxlanBirth } from "./change.ts";
import type { ObservedDevice } from "./observed-device.ts";
import { newDevice } from "./udp/plan.ts";
import type { WantedDevice } from "./wanted.ts";

export interface DevicePlan {
  /** The change of the device, and thereby of the entries on it. */
  readonly device: "kept" | "readdressed" | "made";
  readonly changes: readonly OverlayChange[];
}

/**
 * The changes that bring an overlay's device from the observed to the wanted state. Pure. Throws
 * `OVERLAY_CONFLICT`.
 */
export function planDevice(
  name: string,
  network: Cidr,
  wanted: WantedDevice | undefined,
  observed: ObservedDevice | undefined,
): DevicePlan {
  if (wanted === undefined) return { device: "kept", changes: [] };
  const { device, mtu, vxlan, address } = wanted;
  const alias = overlayMark(name);
  const group = mark.linkGroup;
  // A tunnel's device is only missing for a moment, because it was opened before.
  if (vxlan === undefined)
    return {
      device: observed === undefined ? "made" : "kept",
      changes: repair(wanted, observed ?? newDevice(device), alias, network),
    };
  if (observed !== undefined) {
    const difference = birthDifference(vxlan, observed);
    refuseOthers(alias, observed, difference);
    if (difference === undefined) {
      const readdressed = wanted.mac !== undefined && wanted.mac !== observed.mac;
      const changes = repair(wanted, observed, alias, network);
      return { device: readdressed ? "readdressed" : "kept", changes };
    }
  }
  // A device that was there keeps its MAC, which the others know, whatever else is new about it.
  const mac = wanted.mac ?? observed?.mac;
  const set = { alias, group, mtu, ...(mac === undefined ? {} : { mac }) };
  return {
    device: "made",
    changes: [
      ...(observed === undefined ? [] : [{ kind: "delete-device", device } as const]),
      { kind: "create-device", device, vxlan, set },
      // (A device is born leaving them.)
      ...checksumChange(wanted, true),
      { kind: "add-address", device, prefix: address },
      { kind: "set-device", device, set: { up: true } },
    ],
  };
}

function repair(
  wanted: WantedDevice,
  observed: ObservedDevice,
  alias: string,
  network: Cidr,
): OverlayChange[] {
  const { device, mac, mtu, vxlan, address } = wanted;
  const set = {
    ...(observed.alias === alias ? {} : { alias }),
    ...(observed.group === mark.linkGroup ? {} : { group: mark.linkGroup }),
    ...(mac === undefined || observed.mac === mac ? {} : { mac }),
    ...(observed.mtu === mtu ? {} : { mtu }),
  };
  return [
    ...(Object.keys(set).length === 0 ? [] : [{ kind: "set-device", device, set } as const]),
    ...(vxlan === undefined || observed.vxlan?.learning === vxlan.learning
      ? []
      : [{ kind: "set-learning", device, vni: vxlan.vni, learning: vxlan.learning } as const]),
    ...checksumChange(wanted, observed.txChecksum),
    ...(observed.addresses.includes(address)
      ? []
      : [{ kind: "add-address", device, prefix: address } as const]),
    // After the other has come: with a device's last IPv4 address go its routes and neighbours.
    ...observed.addresses
      .filter((prefix) => prefix !== address && isEnd(prefix, network))
      .map((prefix): OverlayChange => ({ kind: "remove-address", device, prefix })),
    ...(observed.up ? [] : [{ kind: "set-device", device, set: { up: true } } as const]),
  ];
}

const checksumChange = (
  { device, txChecksum }: WantedDevice,
  left: boolean | undefined,
): OverlayChange[] =>
  txChecksum === undefined || txChecksum === left
    ? []
    : [{ kind: "set-tx-checksum", device, left: txChecksum }];

/** Whether it can only be the end this host had with another subnet. */
const isEnd = (prefix: IpPrefix, network: Cidr): boolean =>
  contains(network, ipOf(prefix)) && lengthOf(prefix) === familyBits(prefix.includes(":") ? 6 : 4);

/** The difference that only a new device can remove; undefined if there is none. */
function birthDifference(wanted: VxlanBirth, { kind, vxlan }: ObservedDevice): string | undefined {
  if (vxlan === undefined) return `it is a ${kind ?? "hardware"} link, not a VXLAN`;
  if (vxlan.vni !== wanted.vni) return `its VNI is ${vxlan.vni}, not ${wanted.vni}`;
  if (vxlan.port !== wanted.port) return `its port is ${vxlan.port}, not ${wanted.port}`;
  if (vxlan.local !== wanted.local)
    return `its address is ${vxlan.local ?? "none"}, not ${wanted.local}`;
  if (vxlan.parent !== wanted.parent)
    return `it is bound to ${vxlan.parent ?? "no link"}, not ${wanted.parent}`;
  if (vxlan.gbp !== wanted.gbp) return `it has group policies ${vxlan.gbp ? "on" : "off"}`;
  return vxlan.remote ? "it floods what it does not know" : undefined;
}

/** An unmarked device is adopted as it is, or not at all: another program may still use it. */
function refuseOthers(
  alias: string,
  observed: ObservedDevice,
  difference: string | undefined,
): void {
  if (observed.alias === alias) return;
  const owner = parseOwner(observed.alias);
  const reason =
    owner === undefined ? difference : `it belongs to podnet's ${owner.kind} "${owner.key}"`;
  if (reason === undefined) return;
  throw new PodnetError(
    "OVERLAY_CONFLICT",
    `Link "${observed.device}" exists and cannot be used: ${reason}`,
    {
      hint: `Remove it when nothing uses it any more: ip link delete ${observed.device}`,
      details: { link: observed.device },
    },
  );
}
