import { join } from "node:path";
import type { CniSpec, InterfaceSpec } from "../../../../api/pod-spec.ts";
import { PodnetError } from "../../../../core/errors.ts";
import type { PodId } from "../../../../core/names.ts";
import type { CniPlan, PlannedSandbox } from "../cni-plan.ts";
import { heldAddresses } from "./held-addresses.ts";
import type { InterfaceKind, Planning } from "./kind.ts";
import type { PlannedKind } from "./planned-kind.ts";

/** Ethernet's. */
const usualMtu = 1500;

/**
 * An interface on a link of CNI plugins; its MAC, MTU and addresses are the link's, once that
 * exists.
 */
export function cniKind(cni: CniSpec, request: InterfaceSpec, planning: Planning): InterfaceKind {
  const { position, snapshot } = planning;
  return {
    title: "a link of CNI plugins",
    mtu: usualMtu,
    hasNic: true,
    part: {
      cni: planCni(cni, snapshot.podId, position, snapshot.cni),
      addresses: heldAddresses(request, planning),
    },
  };
}

/** Decides which link an interface is redirected from. */
function planCni(
  { link, netns, list = "", args, capabilities }: CniSpec,
  podId: PodId,
  position: number,
  world: PlannedSandbox | undefined,
): CniPlan {
  if (netns !== undefined) return { netns, link };
  const found = world?.lists[list];
  if (world === undefined || found === undefined)
    throw new RangeError("The list of plugins has not been looked for");
  // One namespace for each interface, as the plugins of each may name their link eth0.
  const containerId = `${podId}-${position}`;
  return {
    netns: join(world.netnsDir, containerId),
    link,
    // As all runtimes do: a plugin ignores arguments that it does not know.
    sandbox: { containerId, ...found, args: { IgnoreUnknown: "1", ...args }, capabilities },
  };
}

/** For changes of a running pod: only the plugins may change their links. Throws `UNSUPPORTED`. */
function refuseCniChange(field: string): never {
  throw new PodnetError(
    "UNSUPPORTED",
    "An interface in the place of a link of CNI plugins stays as the pod was created",
    { field, hint: "Create another pod" },
  );
}

/** The link of CNI plugins that an interface asks for; undefined for other kinds. */
export const cniAsked = (each: InterfaceSpec): CniSpec | undefined =>
  each.kind === "cni" ? each.cni : undefined;

/** Refuses to add such an interface to a pod that exists. Throws `UNSUPPORTED`. */
export function refuseAddition(each: InterfaceSpec, field: string): void {
  if (cniAsked(each) !== undefined) refuseCniChange(`${field}.cni`);
}

export const cniPlanned = (cni: CniPlan): PlannedKind => ({
  whither: () => `${cni.link} of ${cni.netns}, from which it takes over all else`,
  tap: ({ nic }) => `tap ${nic.tap} in ${cni.netns}, redirected to ${cni.link} and back`,
  replaced: { netns: cni.netns, link: cni.link },
  ...(cni.sandbox === undefined ? {} : { sandboxed: true }),
  ...(cni.taken === undefined ? {} : { taken: cni.taken }),
  refuseChange: refuseCniChange,
});
