import { ownFilesOf } from "../../../hypervisor/disks/copy-on-write.ts";
import { everyPort } from "../interfaces/pod-ports.ts";
import { guestOf } from "../guest/guest-of.ts";
import { plannedKind } from "../interfaces/kinds/kind-of.ts";
import { isHeld } from "../machine/held.ts";
import { machineKindOf } from "../machine/machine-of.ts";
import { changingDisks, madeFiles } from "../store/data-disks.ts";
import { type NicInterface, type PodPlan, withCni, withNic } from "../store/pod-plan.ts";
import type { PodContents } from "../store/pod-row.ts";

/** One effect of bringing a pod up. Its names and values are in the plan; see `actions.ts`. */
export type Step =
  | { readonly kind: "publish.hold" }
  /** A namespace of podnet's own, set up by CNI plugins. */
  | { readonly kind: "cni.add" }
  /**
   * Redirects links in podnet's or in foreign namespaces to taps, and adopts their configuration.
   */
  | { readonly kind: "netns.join" }
  | { readonly kind: "tap.open" }
  | { readonly kind: "port.attach" }
  /** The files of the pod's own that its disks write to. */
  | { readonly kind: "disk.make" }
  | { readonly kind: "vm.start" }
  /** Attaches to a foreign machine. */
  | { readonly kind: "vm.attach" }
  | { readonly kind: "guest.ready" }
  /** The agent mounts the pod's shares. */
  | { readonly kind: "guest.mount" }
  /** The agent writes the pod's files. */
  | { readonly kind: "guest.write" }
  | { readonly kind: "guest.configure" }
  | { readonly kind: "nic.plug"; readonly position: number }
  /** A disk that was plugged in earlier. */
  | { readonly kind: "disk.plug"; readonly name: string }
  /** A guest without an agent asks by DHCP for what an agent would be sent. */
  | { readonly kind: "guest.answer"; readonly position: number }
  /** The machine has waited for its NICs. */
  | { readonly kind: "vm.go" }
  | { readonly kind: "guest.verify" }
  /** The main process, once its network is there. */
  | { readonly kind: "process.start" };

export type StepKind = Step["kind"];
export type StepOf<K extends StepKind> = Extract<Step, { readonly kind: K }>;

/** Steps one after the other, or alongside each other. */
export type Flow =
  | Step
  | { readonly kind: "sequence"; readonly flows: readonly Flow[] }
  | { readonly kind: "together"; readonly flows: readonly Flow[] };

const sequence = (...flows: readonly Flow[]): Flow => ({ kind: "sequence", flows });
const together = (...flows: readonly Flow[]): Flow => ({ kind: "together", flows });

/**
 * Bringing a pod up: host and machine run alongside each other, then they are joined. The guest
 * gets its configuration before its NICs are plugged and waits for them, so that plugging and
 * configuring overlap. A pod that is not `fresh` has run before, and its disks keep what it wrote.
 */
export function createSteps(
  { plan, spec }: PodContents,
  { fresh }: { readonly fresh: boolean },
): Flow {
  const nics = withNic(plan.interfaces);
  const joined = withCni(plan.interfaces);
  const guest = guestOf(plan).steps;
  const onTaps = nics.length > joined.length;
  const host = sequence(
    ...(onTaps ? [{ kind: "port.attach" } as const] : []),
    ...(joined.some((each) => plannedKind(each).sandboxed) ? [{ kind: "cni.add" } as const] : []),
    ...(joined.length === 0 ? [] : [{ kind: "netns.join" } as const]),
  );
  const machine = sequence(
    ...(fresh && ownFiles(plan).length > 0 ? [{ kind: "disk.make" } as const] : []),
    machineKindOf(plan.vm).steps.begin,
    ...guest.boot,
  );
  // The seed disk describes the network, which is known when the link is.
  const order = joined.length > 0 && spec.boot.cloudInit !== undefined ? sequence : together;
  return sequence(
    // First, as it is refused most often, and costs the least.
    ...((plan.published ?? []).length === 0 ? [] : [{ kind: "publish.hold" } as const]),
    // A clone starts with the tap of its first NIC.
    ...(onTaps ? [{ kind: "tap.open" } as const] : []),
    // Without NICs the host has no part.
    nics.length === 0 ? machine : order(host, machine),
    ...(plan.vm.shares === undefined ? [] : guest.shares),
    ...(spec.files === undefined ? [] : guest.files),
    together(
      ...guest.configure,
      sequence(
        ...nics.flatMap((each) => plugSteps(each, plan)),
        ...(plan.disks ?? []).map(({ name }) => ({ kind: "disk.plug", name }) as const),
      ),
    ),
    ...(isHeld(plan) ? [{ kind: "vm.go" } as const] : []),
    ...guest.verify,
    ...(plan.process === undefined || (fresh && spec.process?.deferred === true)
      ? []
      : [startOfProcess]),
  );
}

export const startOfProcess = { kind: "process.start" } as const satisfies Step;

/** The files of the pod's own that its disks write to. */
const ownFiles = ({ vm, disks }: PodPlan): string[] => [...ownFilesOf(vm), ...madeFiles(disks)];

/** Plugging a NIC, and answering DHCP requests by it. */
export const plugSteps = (
  each: Pick<NicInterface, "position" | "network" | "addresses">,
  plan: Pick<PodPlan, "agent">,
): readonly Step[] => [
  { kind: "nic.plug", position: each.position },
  ...guestOf(plan).steps.plugged(each),
];

/** One effect of taking a pod down. */
export type UndoStep =
  | { readonly kind: "port.detach" }
  /** The main process is asked to end, then the guest. */
  | { readonly kind: "guest.power-off" }
  | { readonly kind: "vm.stop" }
  /** For a foreign machine: its guest is left as it is, and its NICs are unplugged. */
  | { readonly kind: "guest.leave" }
  | { readonly kind: "vm.release" }
  /**
   * Removes what the pod has written to its disks, when the pod is removed; of a pod that stays the
   * disks whose change was under way.
   */
  | { readonly kind: "disk.drop" }
  /** Removes the log of the main process, when the pod is removed. */
  | { readonly kind: "log.drop" }
  | { readonly kind: "tap.close" }
  /** The links of namespaces are their own again. */
  | { readonly kind: "netns.leave" }
  /** Calls the CNI plugins' DEL, and removes the namespace. */
  | { readonly kind: "cni.delete" }
  /**
   * Removes what the host keeps of the ports: links that outlived their machine, neighbour entries.
   */
  | { readonly kind: "port.forget" };

export type UndoKind = UndoStep["kind"];
export type UndoOf<K extends UndoKind> = Extract<UndoStep, { readonly kind: K }>;

/**
 * Taking a pod down, as far as it exists: after a failed create, for a delete and in recovery.
 * Traffic is cut first, by leaving the bridge. Each step succeeds on absence, and depends on no
 * other step's success. NICs are not unplugged one by one: a guest that has powered off never
 * answers `device_del`.
 */
export function undoSteps(plan: PodPlan): readonly UndoStep[] {
  const { length } = everyPort(plan).ports;
  const joined = withCni(plan.interfaces);
  return [
    ...(length === 0 ? [] : [{ kind: "port.detach" } as const]),
    ...machineKindOf(plan.vm).steps.end,
    { kind: "tap.close" },
    ...(joined.length === 0 ? [] : [{ kind: "netns.leave" } as const]),
    ...(joined.some((each) => plannedKind(each).sandboxed)
      ? [{ kind: "cni.delete" } as const]
      : []),
    ...(length === 0 ? [] : [{ kind: "port.forget" } as const]),
    // Last, as a pod's data cannot be restored.
    ...(ownFiles(plan).length + changingDisks(plan).length === 0
      ? []
      : [{ kind: "disk.drop" } as const]),
    ...(plan.process === undefined ? [] : [{ kind: "log.drop" } as const]),
  ];
}

const titles: Readonly<Record<StepKind | UndoKind, string>> = {
  "publish.hold": "Holding host ports",
  "cni.add": "Running CNI plugins",
  "netns.join": "Joining network namespaces",
  "tap.open": "Opening taps",
  "port.attach": "Joining the bridge",
  "disk.make": "Making the pod's own disk files",
  "vm.start": "Starting the machine",
  "vm.attach": "Connecting to the machine",
  "guest.ready": "Booting the guest",
  "guest.mount": "Mounting shares in the guest",
  "guest.write": "Writing files in the guest",
  "guest.configure": "Configuring the guest",
  "nic.plug": "Plugging a NIC",
  "disk.plug": "Plugging a disk",
  "guest.answer": "Answering the guest's questions",
  "vm.go": "Letting the machine run",
  "guest.verify": "Comparing the guest with the plan",
  "process.start": "Starting the main process",
  "port.detach": "Leaving the bridge",
  "guest.power-off": "Powering the guest off",
  "vm.stop": "Ending the machine",
  "guest.leave": "Letting go of the guest",
  "vm.release": "Taking the NICs back",
  "disk.drop": "Removing the pod's own disk files",
  "log.drop": "Removing the log of the main process",
  "tap.close": "Closing taps",
  "netns.leave": "Leaving network namespaces",
  "cni.delete": "Running CNI plugins' DEL",
  "port.forget": "Clearing the host's memory of the ports",
};

/** A step for people. */
export const stepTitle = (kind: StepKind | UndoKind): string => titles[kind];
