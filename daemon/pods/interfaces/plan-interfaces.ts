import type { InterfaceSpec } from "../../../api/pod-spec.ts";
import { familyOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type IfName, parseIfName } from "../../../core/names.ts";
import { checkPortRoom } from "../../../network/model/port-limit.ts";
import type { Snapshot } from "../plan/snapshot.ts";
import type { InterfacePlan } from "../store/pod-plan.ts";
import { kindOf } from "./kinds/kind-of.ts";
import type { InterfaceKind, Planning } from "./kinds/kind.ts";
import { planGateways, type PodOfInterfaces } from "./plan-gateways.ts";
import { planNic } from "./plan-nic.ts";

/**
 * Decides addresses, gateways, MACs, names and slots of the requested interfaces of a pod.
 * `fieldOf` names the request's fields, for errors.
 */
export function planInterfaces(
  requests: readonly InterfaceSpec[],
  fieldOf: (i: number) => string,
  pod: PodOfInterfaces,
  snapshot: Snapshot,
): InterfacePlan[] {
  const { was, others } = pod;
  const positions = freePositions(others);
  const places = snapshot.machine?.places.values();
  const planned: InterfacePlan[] = [];
  for (const [i, request] of requests.entries()) {
    const planning: Planning = {
      position: was?.position ?? positions.next().value,
      field: fieldOf(i),
      ...(was === undefined ? {} : { was }),
      others: [...others, ...planned],
      requests,
      snapshot,
    };
    const kind = kindOf(request, planning);
    if (kind.hasNic) checkSlots(planning, others.length + requests.length);
    planned.push({
      position: planning.position,
      ...kind.part,
      gateways: [],
      mtu: planMtu(request, kind, planning),
      guestName: planName(request, kind, planning),
      ...(kind.hasNic ? { nic: planNic(request, kind, planning, places) } : {}),
    });
  }
  if (was === undefined) checkRoom(planned, snapshot);
  const gateways = planGateways(planned, requests, fieldOf, pod, snapshot);
  return planned.map((each, i) => ({ ...each, gateways: gateways[i] ?? [] }));
}

/** Free positions, smallest first: a position is free again once its NIC is unplugged. */
function* freePositions(others: readonly InterfacePlan[]): Generator<number, never> {
  const taken = new Set(others.map(({ position }) => position));
  for (let position = 0; ; position++) if (!taken.has(position)) yield position;
}

function checkSlots({ position, field, snapshot }: Planning, count: number): void {
  const { nicSlots } = snapshot.driver;
  if (position < nicSlots) return;
  throw new PodnetError(
    "NIC_SLOTS_FULL",
    `${count} interfaces are more than a machine's ${nicSlots} slots`,
    {
      field: field.replace(/\[.*/, ""),
      hint: `Ask for at most ${nicSlots} interfaces; a slot is free again when the guest has let go of its NIC`,
    },
  );
}

/** Throws `BRIDGE_FULL` where a network's bridge has no port left. */
function checkRoom(planned: readonly InterfacePlan[], { networks }: Snapshot): void {
  for (const { name, bridge, ports } of networks) {
    const wanted = planned.filter(({ network }) => network === name).length;
    if (wanted > 0) checkPortRoom({ bridge, used: ports, wanted });
  }
}

function planMtu(request: InterfaceSpec, kind: InterfaceKind, { field, was }: Planning): number {
  if (!kind.hasNic) return kind.mtu;
  const mtu = request.mtu ?? kind.mtu;
  // An interface may keep its MTU, though its network has become narrower since.
  const most = Math.max(kind.mtu, was?.mtu ?? 0);
  // RFC 8200 section 5: IPv6 asks for 1280.
  const least = kind.part.addresses.some((address) => familyOf(address) === 6) ? 1280 : 576;
  if (mtu >= least && mtu <= most) return mtu;
  throw new PodnetError(
    "MTU_OUT_OF_RANGE",
    `MTU ${mtu} is not between ${least} and the ${kind.mtu} of ${kind.title}`,
    {
      field: `${field}.mtu`,
      hint: `Ask for ${least} to ${kind.mtu}, or leave it out`,
    },
  );
}

function planName(
  request: InterfaceSpec,
  kind: InterfaceKind,
  { position, field, was, others }: Planning,
): IfName {
  const name =
    was?.guestName ?? kind.guestName ?? request.guestName ?? parseIfName(`eth${position}`);
  if (others.every(({ guestName }) => guestName !== name)) return name;
  throw new PodnetError("INVALID_ARGUMENT", `Guest name "${name}" is taken`, {
    field: `${field}.guest_name`,
    hint: "Every interface of a guest needs a name of its own, and lo is one already",
  });
}
