import type { InterfaceSpec } from "../../../api/pod-spec.ts";
import type { Mac } from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type IfName, parseIfName } from "../../../core/names.ts";
import type { NicPlace, NicPlan } from "../../../hypervisor/driver.ts";
import { attachedNic } from "../machine/plan-attached.ts";
import { withNic } from "../store/pod-plan.ts";
import { ownOther } from "./kinds/address-held.ts";
import type { InterfaceKind, Planning } from "./kinds/kind.ts";

/** The tap of an interface: the pod's id and one base-36 digit, 15 bytes in all. */
const tapName = (podId: string, position: number): IfName =>
  parseIfName(`pn${podId}${position.toString(36)}`);

/**
 * Decides an interface's NIC: its slot, tap and MAC. `places` are a foreign machine's free slots,
 * each taken once; in podnet's own machine the position decides the slot. Throws `NIC_SLOTS_FULL`,
 * `NAME_IN_USE`, `MAC_IN_USE`.
 */
export function planNic(
  request: InterfaceSpec,
  { foreignTap }: InterfaceKind,
  planning: Planning,
  places: Iterator<NicPlace> | undefined,
): NicPlan {
  const { position, field, was, snapshot } = planning;
  const { podId } = snapshot;
  if (was?.nic !== undefined) return was.nic;
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
    ...ids,
    tap:
      request.tap === undefined
        ? tapName(podId, position)
        : freeTap(request.tap, foreignTap === true, planning),
    mac: request.mac === undefined ? freshMac(planning) : freeMac(request.mac, planning),
  };
}

function nextOf(places: Iterator<NicPlace>): NicPlace | undefined {
  const { value, done } = places.next();
  return done === true ? undefined : value;
}

/** A requested tap name. The link must not exist yet, unless it is a foreign tap that is `kept`. */
function freeTap(
  tap: IfName,
  kept: boolean,
  { field, others, snapshot: { tapHolders = {}, links = {} } }: Planning,
): IfName {
  const holder =
    tapHolders[tap] ??
    (withNic(others).some(({ nic }) => nic.tap === tap) ? ownOther : undefined) ??
    (!kept && links[tap] !== undefined ? "a link of the host" : undefined);
  if (holder === undefined) return tap;
  throw new PodnetError("NAME_IN_USE", `Tap name "${tap}" is taken by ${holder}`, {
    field: `${field}.tap`,
    hint: "Choose another name, or leave it out",
    details: { holder },
  });
}

function freeMac(mac: Mac, { field, others, snapshot: { macHolders } }: Planning): Mac {
  const own = withNic(others).some(({ nic }) => nic.mac === mac);
  const holder = macHolders[mac] ?? (own ? ownOther : undefined);
  if (holder === undefined) return mac;
  throw new PodnetError("MAC_IN_USE", `MAC ${mac} is taken by ${holder}`, {
    field: `${field}.mac`,
    hint: "Ask for another MAC, or for none",
    details: { holder },
  });
}

function freshMac({ others, requests, snapshot: { freshMacs } }: Planning): Mac {
  const taken = new Set<Mac | undefined>([
    ...withNic(others).map(({ nic }) => nic.mac),
    ...requests.map(({ mac }) => mac),
  ]);
  const mac = freshMacs.find((each) => !taken.has(each));
  if (mac === undefined) throw new RangeError("The snapshot holds too few fresh MACs");
  return mac;
}
