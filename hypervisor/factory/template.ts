import { randomBytes } from "node:crypto";
import { dirname, join } from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { podIdFromBytes } from "../../core/names.ts";
import { type Memfd, openMemfd } from "../../linux/files/memfd.ts";
import { type RunningVm, templatePrefix, type VmPlan } from "../driver.ts";
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
}

/** A machine that can be written down. */
type Savable = RunningVm & { save(fd: number, signal: AbortSignal): Promise<void> };

/**
 * Waits until the guest of a template is as clones are to find it, and keeps it so until disposed:
 * its channels stay connected. Throws when a guest cannot be cloned safely.
 */
export type AwaitGuest = (vm: RunningVm, signal: AbortSignal) => Promise<AsyncDisposable>;

export interface TemplateParts {
  /** Starts the template's machine, with a file for its memory. */
  start(plan: VmPlan, memoryFd: number, signal: AbortSignal): Promise<Savable>;
  readonly awaitGuest: AwaitGuest;
}

/** Boots a machine like the plan's, writes it down and ends it. On failure nothing is left. */
export async function buildTemplate(
  plan: VmPlan,
  { start, awaitGuest }: TemplateParts,
  signal: AbortSignal,
): Promise<Template> {
  using files = new DisposableStack();
  const memory = files.use(openMemfd("podnet-memory", plan.memoryMib * 2 ** 20));
  const state = files.use(openMemfd("podnet-state", 0));
  {
    const vm = await start(templatePlan(plan), memory.fd, signal);
    await using _ended = { [Symbol.asyncDispose]: () => vm.stop({ graceMs: 0 }) };
    const alive = AbortSignal.any([signal, endOf(vm)]);
    await using _guest = await awaitGuest(vm, alive);
    await vm.save(state.fd, alive);
  }
  // Only now: a shared writable mapping, the template's own, would forbid it.
  memory.seal();
  state.seal();
  const kept = files.move();
  return { memory, state, [Symbol.dispose]: () => kept.dispose() };
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
