import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError } from "../../core/errors.ts";
import type { NicPlan } from "../driver.ts";
import type { QmpClient } from "../qmp/client.ts";

/**
 * Takes back what may be there; answers whether the device may still be, until the guest lets go of
 * it.
 */
export async function undoPlug(
  qmp: QmpClient,
  nic: NicPlan,
  names: readonly string[],
  undo: { readonly device: boolean; readonly netdev: boolean },
): Promise<boolean> {
  const stays = undo.device ? askToLeave(qmp, nic.nicId) : Promise.resolve(false);
  const steps: Promise<unknown>[] = [stays];
  if (undo.netdev) steps.push(qmp.execute("netdev_del", { id: nic.netdevId }));
  // netdev_add uses the name up when it gets as far as looking it up, and leaves it when it fails
  // before.
  for (const fdname of names) steps.push(qmp.execute("closefd", { fdname }));
  await Promise.allSettled(steps);
  return stays.catch(() => true);
}

/**
 * Between two attempts to ask a guest that is still busy with what was plugged, milliseconds, and
 * how many there are.
 */
const busy = { againMs: 500, attempts: 12 } as const;

/** Asks the guest to release a NIC or a disk; false when there is no such device. */
export async function askToLeave(qmp: QmpClient, id: string): Promise<boolean> {
  for (let attempt = 1; ; attempt++) {
    try {
      await qmp.execute("device_del", { id });
      return true;
    } catch (error) {
      if (!isPodnetError(error, "QMP_FAILED")) throw error;
      if (error.details["class"] === "DeviceNotFound") return false;
      // Within a second of an earlier request QEMU 7.2 refuses another one.
      if (error.message.includes("already in the process of unplug")) return true;
      // A root port without ACPI: its indicator blinks for some seconds (hw/pci/pcie.c).
      if (!error.message.includes("guest is busy") || attempt === busy.attempts) throw error;
    }
    await delay(busy.againMs);
  }
}

/** netdev_del and closefd of what is not there are successes. */
export async function tolerateAbsence(command: Promise<unknown>): Promise<void> {
  try {
    await command;
  } catch (error) {
    if (!isPodnetError(error, "QMP_FAILED") || !error.message.includes("not found")) throw error;
  }
}
