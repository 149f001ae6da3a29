import { randomBytes } from "node:crypto";
import { dirname, join } from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { type IfName, parseIfName, type PodId, podIdFromBytes } from "../../core/names.ts";
import { type Memfd, openMemfd } from "../../linux/files/memfd.ts";
import type { Tap } from "../../linux/tun.ts";
import {
  type ProgramPlan,
  type RunningVm,
  templateNicMac,
  templatePrefix,
  type VmPlan,
} from "../driver.ts";
import { jailOf } from "../jail/cgroup-layout.ts";

/**
 * The state of a machine when its agent had said READY, from which clones start. It can no longer
 * change.
 */
export interface Template extends Disposable {
  /** The guest's memory: QEMU maps it privately. */
  readonly memory: Memfd;
  /** The state of everything else. */
  readonly state: Memfd;
  /** It has the NIC of its plan, with `templateNicMac`. */
  readonly hasNic: boolean;
  /** What was found out about its guest: see `RunningVm.templateGuest`. */
  readonly guest: object;
}

/** The guest of a template; disposing lets go of its channels. */
interface TemplateGuest extends AsyncDisposable {
  /** What is known of it, also of its NIC once that is parked. Handed on to those who clone it. */
  readonly known: object;
  /**
   * Waits until the guest has found a NIC with `templateNicMac`, and leaves its link down. Absent
   * when its agent cannot give a NIC its own MAC: then its clones' NICs are plugged.
   */
  readonly parkNic?: () => Promise<void>;
  /** Reads the files that a program's start will read. */
  preload(program: ProgramPlan): Promise<void>;
}

/** A machine that can be written down. */
type Savable = RunningVm & { save(fd: number, signal: AbortSignal): Promise<void> };

/**
 * Waits until the guest of a template is as clones are to find it, and keeps it so until disposed:
 * its channels stay connected. Throws when a guest cannot be cloned safely.
 */
export type AwaitGuest = (vm: RunningVm, signal: AbortSignal) => Promise<TemplateGuest>;

export interface TemplateParts {
  /** Starts the template's machine, with a file for its memory. */
  start(plan: VmPlan, memoryFd: number, signal: AbortSignal): Promise<Savable>;
  readonly awaitGuest: AwaitGuest;
  /** Makes the tap of its NIC, which leads nowhere. */
  openTap(name: IfName): Tap;
}

/** Boots a machine like the plan's, writes it down and ends it. On failure nothing is left. */
export async function buildTemplate(
  plan: VmPlan,
  { start, awaitGuest, openTap }: TemplateParts,
  signal: AbortSignal,
): Promise<Template> {
  using files = new DisposableStack();
  const memory = files.use(openMemfd("podnet-memory", plan.memoryMib * 2 ** 20));
  const state = files.use(openMemfd("podnet-state", 0));
  let hasNic = false;
  let known: object;
  {
    const own = templatePlan(plan);
    const vm = await start(own, memory.fd, signal);
    await using _ended = { [Symbol.asyncDispose]: () => vm.stop({ graceMs: 0 }) };
    const alive = AbortSignal.any([signal, endOf(vm)]);
    await using guest = await awaitGuest(vm, alive);
    if (plan.nic !== undefined && guest.parkNic !== undefined) {
      await using tap = openTap(templateTap(own));
      await vm.plug({ ...plan.nic, mac: templateNicMac }, tap.fds, alive);
      await guest.parkNic();
      hasNic = true;
    }
    if (plan.program !== undefined) await guest.preload(plan.program);
    known = guest.known;
    await vm.save(state.fd, alive);
  }
  // Only now: a shared writable mapping, the template's own, would forbid it.
  memory.seal();
  state.seal();
  const kept = files.move();
  return { memory, state, hasNic, guest: known, [Symbol.dispose]: () => kept.dispose() };
}

/**
 * The template's own machine: an id of its own in a directory alongside the pod's, by whose name a
 * podnetd that starts after one was killed knows it, and ends it: it has no row.
 */
function templatePlan(plan: VmPlan): VmPlan {
  const podId = podIdFromBytes(randomBytes(12));
  const jail = plan.jail === undefined ? {} : { jail: jailOf(plan.jail, podId) };
  return { ...plan, ...jail, podId, runDir: join(dirname(plan.runDir), templatePrefix + podId) };
}

const templateTap = ({ podId }: { readonly podId: PodId }): IfName => parseIfName(`tn${podId}`);

/**
 * Aborted when the machine ends, or its guest restarts: a kernel that panicked does so for ever.
 */
function endOf(vm: RunningVm): AbortSignal {
  const ended = new AbortController();
  vm.onEvent((event) => {
    if (event.kind === "exited")
      ended.abort(new PodnetError("QEMU_EXITED", `The machine ended: ${event.detail}`));
    if (event.kind === "guest-reset")
      ended.abort(
        new PodnetError("BOOT_FAILED", "The guest restarted before its agent was ready", {
          hint: "See the end of its console in the details: more memory, or another kernel or initramfs",
        }),
      );
  });
  return ended.signal;
}
