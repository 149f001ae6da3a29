import type { Clock } from "../../../core/clock.ts";
import type { Guest, OpenGuestOptions } from "../../../guest-init/channel/guest.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";
import type { Driver, VmRecord } from "../../../hypervisor/driver.ts";
import type { Confinement } from "../../../hypervisor/process/confinement.ts";
import type { IfName } from "../../../core/names.ts";
import type { LoopTurns } from "../../../linux/loop-turns.ts";
import type { Tap } from "../../../linux/tun.ts";
import type { PortAnswersOptions } from "../../dhcp/port-answers.ts";
import type { KnownNetworks } from "../../networks/known-networks.ts";
import type { HostNetwork } from "../../../network/bridge/host-network.ts";
import type { HeldPorts } from "../../published/held-ports.ts";
import type { RehearsalRoom } from "../pool/rehearsal-room.ts";
import type { LivePod } from "./live-pod.ts";
import type { PodContents } from "../store/pod-row.ts";
import type { PodPlan } from "../store/pod-plan.ts";
import type { Sandboxes } from "../interfaces/sandboxes.ts";

/** The host's network, as far as pods need it. */
type PodNetwork = Pick<HostNetwork, "apply" | "inspectRules" | "remove" | "observe">;

/** The parts of the host that a pod's steps act on. */
export interface Host {
  readonly driver: Driver;
  /** The current networks, which a pod's ports follow. */
  readonly networks: Pick<KnownNetworks, "list">;
  /** The confinement of new machines; undefined leaves them unconfined. */
  readonly confinement?: Confinement | undefined;
  readonly network: PodNetwork;
  /** The host ports that pods have published. */
  readonly published: HeldPorts;
  /** Network namespaces that machines join. */
  readonly sandboxes: Sandboxes;
  readonly clock: Clock;
  /** Which steps of pods wait for. */
  readonly turns: LoopTurns;
  /** Makes a tap with so many queues (1 unless given), or opens a foreign one. */
  openTap(name: IfName, options?: { readonly kept: boolean; readonly queues: number }): Tap;
  /** Where machines of a pool rehearse; without it no neighbour visits them. Throws as it does. */
  openRehearsalRoom?(): RehearsalRoom;
  openGuest(options: OpenGuestOptions): Guest;
  /**
   * Answers a guest's DHCP requests on one of its ports, until disposed. Throws `SYSCALL_FAILED`.
   */
  openAnswers(options: PortAnswersOptions): Disposable;
  /** A guest's request was not answered; `what` comes from a small set. */
  dropped(what: string): void;
  /** Records what a guest is seen to have, and reports it. Never throws. */
  noteGuest(live: LivePod, text: string): void;
  randomBytes(count: number): Uint8Array;
  /**
   * Records what was observed in a pod's plan, durably. `next` is also applied to the contents that
   * the pod may go back to.
   */
  learn(live: LivePod, text: string, next: (pod: PodContents) => PodPlan): void;
  /** What podnetd keeps of main processes. */
  readonly processes: {
    readonly logsDir: string;
    /** Records a start before it happens, and answers which one it is. */
    starts(plan: PodPlan): number;
    /** Records an end that the guest reports. Never throws. */
    ended(plan: PodPlan, end: ProcessEnd): void;
  };
  /** Makes a machine's record durable, before anything is built on it. */
  recordRun(plan: PodPlan, record: VmRecord): void;
  readonly timeouts: {
    readonly readyMs: number;
    /** For a guest whose agent is asked to power it off. */
    readonly stopMs: number;
    /** For a guest without an agent. */
    readonly powerButtonMs: number;
  };
}
