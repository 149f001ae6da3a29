import type { PodSpec } from "../../../api/pod-spec.ts";
import { familyOf } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type IfName, parseIfName } from "../../../core/names.ts";
import type { NicPlace, NicPlan } from "../../../hypervisor/driver.ts";
import { checkPortRoom } from "../../../network/model/port-limit.ts";
import { Choice } from "./choose-interfaces.ts";
import { attachedNic } from "../machine/plan-attached.ts";
import { type AskedRoute, planGateways } from "./plan-gateways.ts";
import { findPlace } from "./kinds/find-place.ts";
import type { Draft, Wish } from "./kinds/place.ts";
import type { InterfacePlan } from "../store/pod-plan.ts";
import type { Snapshot } from "../plan/snapshot.ts";

/** The tap of an interface: the pod's id and one base-36 digit, 15 bytes in all. */
function tapName(podId: string, position: number): IfName {
  return parseIfName(`pn${podId}${position.toString(36)}`);
}

/** Decides addresses, MACs, names and slots of a new pod's interfaces. */
export function planInterfaces(spec: PodSpec, snapshot: Snapshot): InterfacePlan[] {
  const wishes = spec.interfaces.map((wanted, i) => ({ wanted, field: `interfaces[${i}]` }));
  const routes = spec.routes.map((route, i) => ({ ...route, field: `routes[${i}]` }));
  return planWishes(wishes, [], routes, snapshot);
}

/** Decides addresses, MACs, names and slots of some interfaces, alongside others of the pod. */
export function planWishes(
  wishes: readonly Wish[],
  others: readonly InterfacePlan[],
  routes: readonly AskedRoute[],
  snapshot: Snapshot,
): InterfacePlan[] {
  const positions = freePositions(others);
  const choice = new Choice(wishes, others, snapshot);
  const drafts = wishes.map((wish): Draft => {
    const position = wish.was?.position ?? positions.next().value;
    const place = findPlace(wish, snapshot);
    return { ...wish, position, place, addresses: place.addresses(wish, choice) };
  });
  checkSlots(drafts, others, snapshot);
  checkRoom(drafts);
  // In podnet's own machine the position decides the slot.
  const places = snapshot.machine?.places.values();
  const gateways = planGateways(drafts, others, routes);
  return drafts.map((draft) => ({
    position: draft.position,
    ...draft.place.planned(draft, snapshot),
    addresses: draft.addresses,
    gateways: gateways.get(draft.position) ?? [],
    mtu: planMtu(draft),
    guestName: choice.guestName(draft, draft.place, draft.position),
    ...nicOf(draft, choice, snapshot, places),
  }));
}

/** Free positions, smallest first: a position is free again once its NIC is unplugged. */
function* freePositions(others: readonly InterfacePlan[]): Generator<number, never> {
  const taken = new Set(others.map(({ position }) => position));
  for (let position = 0; ; position++) if (!taken.has(position)) yield position;
}

function nicOf(
  { wanted, was, place, position, field }: Draft,
  choice: Choice,
  { podId }: Snapshot,
  places: Iterator<NicPlace> | undefined,
): { readonly nic?: NicPlan } {
  if (!place.hasNic) return {};
  if (was?.nic !== undefined) return { nic: was.nic };
  const ids =
    places === undefined
      ? {
          nicId: `nic${position}`,
          netdevId: `net${position}`,
          fdName: `fd-${podId}-${position}`,
          slot: position + 1,
        }
      : attachedNic(podId, position, nextOf(places), field);
  return {
    nic: {
      ...ids,
      tap: choice.tap({ wanted, field }, place, tapName(podId, position)),
      mac: choice.mac({ wanted, field }),
    },
  };
}

function nextOf(places: Iterator<NicPlace>): NicPlace | undefined {
  const { value, done } = places.next();
  return done === true ? undefined : value;
}

function checkSlots(
  drafts: readonly Draft[],
  others: readonly InterfacePlan[],
  { driver: { nicSlots } }: Snapshot,
): void {
  const full = drafts.find(({ place, position }) => place.hasNic && position >= nicSlots);
  if (full === undefined) return;
  const count = drafts.length + others.length;
  throw new PodnetError(
    "NIC_SLOTS_FULL",
    `${count} interfaces are more than a machine's ${nicSlots} slots`,
    {
      field: full.field.replace(/\[.*/, ""),
      hint: `Ask for at most ${nicSlots} interfaces; a slot is free again when the guest has let go of its NIC`,
    },
  );
}

function checkRoom(drafts: readonly Draft[]): void {
  const more = new Map<string, number>();
  for (const { place, was } of drafts) {
    const { room } = place;
    if (room === undefined || was !== undefined) continue;
    const wanted = (more.get(room.bridge) ?? 0) + 1;
    more.set(room.bridge, wanted);
    checkPortRoom({ ...room, wanted });
  }
}

function planMtu({ wanted, place, addresses, field, was }: Draft): number {
  if (!place.hasNic) return place.mtu;
  const mtu = wanted.mtu ?? place.mtu;
  // An interface may keep its MTU, though its network has become narrower since.
  const most = Math.max(place.mtu, was?.mtu ?? 0);
  // RFC 8200 section 5: IPv6 asks for 1280.
  const least = addresses.some((address) => familyOf(address) === 6) ? 1280 : 576;
  if (mtu >= least && mtu <= most) return mtu;
  throw new PodnetError(
    "MTU_OUT_OF_RANGE",
    `MTU ${mtu} is not between ${least} and the ${place.mtu} of ${place.title}`,
    {
      field: `${field}.mtu`,
      hint: `Ask for ${least} to ${place.mtu}, or leave it out`,
    },
  );
}
