import type { OpenGuestOptions } from "../../../guest-init/channel/guest.ts";
import type { RunningVm, VmPlan } from "../../../hypervisor/driver.ts";
import type { PodPlan } from "../store/pod-plan.ts";

/**
 * A kind of machine: one that podnet starts and ends, or a foreign one to which a pod is attached.
 * Each kind is one module of this folder. Other code asks a kind what it can do, and never which
 * one it is.
 */
export interface MachineKind {
  /**
   * podnet starts the machine, may stop it, and ends it with the pod. From a foreign machine podnet
   * unplugs what it plugged.
   */
  readonly isOwn: boolean;
  /** podnet has its console. */
  readonly hasConsole: boolean;
  /** The guest has been up since before the pod was made. */
  readonly guestIsUp: boolean;
  readonly steps: MachineSteps;

  /** The sockets of the agent's channel. Throws `INTERNAL` when there is no channel. */
  channels(vm: Pick<RunningVm, "socketPath">): Pick<OpenGuestOptions, "channelPath" | "ttyPath">;
  /** A monitor of its own for programs that check podnet; undefined when it has none. */
  verifySocket(vm: Pick<RunningVm, "socketPath">): string | undefined;
  readonly text: MachineText;
}

/** The machine's part of bringing a pod up and of taking it down. */
interface MachineSteps {
  readonly begin: { readonly kind: "vm.start" | "vm.attach" };
  readonly end: readonly {
    readonly kind: "guest.power-off" | "vm.stop" | "guest.leave" | "vm.release";
  }[];
}

/** The texts about a machine for people. */
interface MachineText {
  /** How a new pod gets the machine. */
  claim(plan: Pick<PodPlan, "podId" | "name">, vm: VmPlan): string;
  /** How a pod's machine begins. */
  begin(vm: VmPlan, describe: MachineDescriber): MachineSection;
  /** What to do with a pod whose machine has ended. */
  hintWhenAbsent(name: string): string;
  /** The hint for attaching another pod to the machine. */
  hintWhenHeld(name: string): string;
  /** What cannot be done with a machine that podnet did not start. */
  cannot(guest: { readonly hasAgent: boolean }): readonly string[];
}

/** A part of a plan for people: see `PlanSection`. */
interface MachineSection {
  readonly title: string;
  readonly lines: readonly string[];
}

/** How the driver renders a machine's start. */
interface MachineDescriber {
  command(vm: VmPlan): readonly string[];
  /** The commands that make a clone of a started machine. */
  restore(): readonly string[];
}
