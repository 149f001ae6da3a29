import { accessSync, constants, realpathSync } from "node:fs";
import type { PodSpec } from "../../../api/pod-spec.ts";
import { limited } from "../../../core/aborting.ts";
import { PodnetError } from "../../../core/errors.ts";
import { denied } from "../../../hypervisor/attach/monitor.ts";
import type { FoundMachine, RunningVm, VmPlan } from "../../../hypervisor/driver.ts";
import { isRunning } from "../../../hypervisor/process/process.ts";
import type { PodRow } from "../store/pod-row.ts";
import type { PodsParts } from "../pods-parts.ts";
import { machineKindOf } from "./machine-of.ts";

/** Longest a machine may take to answer about itself, milliseconds. */
const lookMs = 5000;

/**
 * Looks at the machine that a spec names; undefined where podnet is to start one of its own.
 * Changes nothing. Throws `WRONG_STATE` when a pod is attached to the machine already,
 * `UNSUPPORTED`, and as `Driver.lookAt` and `requireSocket`, the latter for its channels.
 */
export async function attachedMachine(
  { attached }: Pick<PodSpec, "attached">,
  { host, records }: Pick<PodsParts, "host" | "records">,
  signal: AbortSignal,
): Promise<FoundMachine | undefined> {
  if (attached === undefined) return undefined;
  const { driver } = host;
  if (driver.lookAt === undefined)
    throw new PodnetError("UNSUPPORTED", "This driver attaches no machines", {
      field: "qmp_socket",
    });
  const rows = records.list();
  const path = realPath(attached.qmp);
  const holder = rows.find(({ plan: { vm } }) =>
    vm.attached === undefined
      ? path.startsWith(`${realPath(vm.runDir)}/`)
      : realPath(vm.attached.qmp) === path,
  );
  if (holder !== undefined) throw held(holder);
  if (attached.channel !== undefined) requireSocket(attached.channel, "channel_socket");
  if (attached.tty !== undefined) requireSocket(attached.tty, "tty_socket");
  const machine = await driver.lookAt(attached.qmp, limited(lookMs, signal));
  const same = rows.find(({ id }) => {
    const run = records.run(id);
    return run?.pid === machine.pid && isRunning(run);
  });
  if (same !== undefined) throw held(same);
  return machine;
}

/**
 * The machine of another program that a pod is attached to, with its free slots for NICs, which
 * `running` reports. Undefined for podnet's own machines.
 */
export async function placesNow(
  { attached, vcpu, memoryMib }: VmPlan,
  running: RunningVm | undefined,
  signal: AbortSignal,
): Promise<Omit<FoundMachine, "pid"> | undefined> {
  if (attached === undefined) return undefined;
  const { type, accelerator } = attached;
  const places = (await running?.places?.(limited(lookMs, signal))) ?? [];
  return { type, accelerator, vcpu, memoryMib, places };
}

/**
 * Checks whether podnetd could open a socket, without a connection that the guest would notice.
 * Throws `INVALID_ARGUMENT` when there is none, `PERMISSION_DENIED`.
 */
function requireSocket(path: string, field: string): void {
  try {
    accessSync(path, constants.W_OK);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code !== "ENOENT" && code !== "ENOTDIR") throw denied(path, field, thrown);
    throw new PodnetError("INVALID_ARGUMENT", `There is no socket "${path}"`, {
      field,
      hint: "Give the path of the chardev of the machine's virtserialport",
      details: { path },
    });
  }
}

/** A path without symbolic links, as far as it exists. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

const held = ({ name, plan }: PodRow): PodnetError =>
  new PodnetError("WRONG_STATE", `The machine is that of pod "${name}"`, {
    field: "qmp_socket",
    hint: machineKindOf(plan.vm).text.hintWhenHeld(name),
    details: { holder: name },
  });

/** Refuses operations that are for a foreign machine's owner. Throws `UNSUPPORTED`. */
export function refuseOwners({ name, plan }: PodRow, what: string): void {
  if (plan.vm.attached === undefined) return;
  throw new PodnetError(
    "UNSUPPORTED",
    `The machine of pod "${name}" is foreign: podnet does not ${what} it`,
    {
      hint: `Ask its owner; what podnet gave it is taken back by podnet detach ${name}`,
      details: { qmp: plan.vm.attached.qmp },
    },
  );
}

/** Throws `WRONG_STATE` for a pod with a machine of podnet's own. */
export function requireAttached({ name, plan }: PodRow): void {
  if (plan.vm.attached !== undefined) return;
  throw new PodnetError("WRONG_STATE", `Pod "${name}" is not attached: podnet runs its machine`, {
    hint: `To end it and all of it: podnet delete ${name}`,
  });
}
