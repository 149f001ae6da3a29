import { setTimeout as delay } from "node:timers/promises";
import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import type { MachineKind } from "../argv/machine-kinds.ts";
import { diskId, diskName, plugDiskCommands } from "../argv/plug-disk-commands.ts";
import type { HotDiskPlan } from "../driver.ts";
import { leftWithin, throwIfAborted } from "../nics/leaving.ts";
import { askToLeave } from "../nics/nic-removal.ts";
import type { QmpClient } from "../qmp/client.ts";
import { parseFdSets } from "../qmp/fd-sets.ts";
import { listPeripherals, type Peripherals } from "../qmp/peripherals.ts";

/** `left`: QEMU has reported that the device is gone, which a guest can bring about at any time. */
interface Held {
  state: "plugging" | "plugged" | "unplugging" | "pending";
  left: boolean;
  readonly leaving: PromiseWithResolvers<void>;
}

export interface HotDisksOptions {
  /** The current session; throws when there is none. */
  readonly qmp: () => QmpClient;
  readonly kind: MachineKind;
  /** Milliseconds a guest gets to let go of a disk. */
  readonly unplugMs: number;
  /** As `NicsOptions.onRemoved`. */
  readonly onRemoved: (name: string, expected: boolean) => void;
}

/**
 * A node may be in use for a moment after its device is gone: between two attempts to delete it,
 * milliseconds, and how many there are.
 */
const inUse = { againMs: 50, attempts: 20 } as const;

/** The disks plugged into one running VM. Its owner makes one change of a disk at a time. */
export class HotDisks {
  readonly #options: HotDisksOptions;
  /** By name. */
  readonly #held = new Map<string, Held>();

  constructor(options: HotDisksOptions) {
    this.#options = options;
  }

  /** See `RunningVm.plugDisk`. */
  async plug(disk: HotDiskPlan, fd: number, signal: AbortSignal): Promise<void> {
    const { name } = disk;
    const known = this.#held.get(name);
    if (known !== undefined) throw refused(name, known.state);
    const held = newHeld("plugging");
    this.#held.set(name, held);
    try {
      // A command on its way is always awaited: only then is it known what has to be undone.
      const qmp = this.#options.qmp();
      throwIfAborted(signal);
      const set = await qmp.addFd(diskId(name), fd);
      const commands = plugDiskCommands(disk, this.#options.kind, set);
      throwIfAborted(signal);
      await qmp.execute("blockdev-add", commands["blockdev-add"]);
      // The node has a descriptor of its own now.
      await qmp.execute("remove-fd", { "fdset-id": set });
      throwIfAborted(signal);
      await qmp.execute("device_add", commands.device_add);
    } catch (error) {
      // What cannot be taken back now ends with the machine, and is taken back by its owner's undo.
      await this.#takeOut(name, held, AbortSignal.timeout(this.#options.unplugMs)).catch(() => {});
      throw toPodnetError(error).with({ step: "disk.plug", details: { disk: name } });
    }
    held.state = "plugged";
    if (held.left) await this.#ejected(name, held);
  }

  /** See `RunningVm.unplugDisk`. */
  async unplug(name: string, signal: AbortSignal): Promise<"unplugged" | "pending"> {
    const held = this.#held.get(name) ?? newHeld("plugged");
    this.#held.set(name, held);
    try {
      return await this.#takeOut(name, held, signal);
    } catch (error) {
      throw toPodnetError(error).with({ step: "disk.unplug", details: { disk: name } });
    }
  }

  /** Takes out whatever there is of a disk: device, node and descriptor. Absent is success. */
  async #takeOut(name: string, held: Held, signal: AbortSignal): Promise<"unplugged" | "pending"> {
    held.state = "unplugging";
    try {
      const qmp = this.#options.qmp();
      const there = !held.left && (await askToLeave(qmp, diskId(name)));
      if (there) await leftWithin(held, qmp, this.#options.unplugMs, signal);
      if (there && !held.left) {
        throwIfAborted(signal);
        return "pending";
      }
      await removeNode(qmp, diskId(name));
      this.#held.delete(name);
      return "unplugged";
    } finally {
      if (this.#held.get(name) === held) held.state = "pending";
    }
  }

  /** Names of the disks QEMU has now, in its order. */
  async list(signal?: AbortSignal): Promise<readonly string[]> {
    const options = signal === undefined ? {} : { signal };
    return disksAmong(await listPeripherals(this.#options.qmp(), options));
  }

  /** Learns which disks there are, as `Nics.observe`. */
  observe(peripherals: Peripherals): void {
    const there = disksAmong(peripherals);
    for (const [name, { state }] of this.#held)
      if (state !== "plugging" && !there.includes(name)) this.#left(name);
    for (const name of there) if (!this.#held.has(name)) this.#held.set(name, newHeld("plugged"));
  }

  /** DEVICE_DELETED with this `device` has arrived; answers whether it reported a disk. */
  deviceDeleted(id: string): boolean {
    const name = diskName(id);
    return name !== undefined && this.#left(name);
  }

  #left(name: string): boolean {
    const held = this.#held.get(name);
    if (held === undefined || held.left) return false;
    held.left = true;
    held.leaving.resolve();
    // A session lost meanwhile takes the answer with it; the node is then removed with the disk.
    if (held.state === "pending" || held.state === "plugged")
      void this.#ejected(name, held).catch(() => {});
    return true;
  }

  async #ejected(name: string, held: Held): Promise<void> {
    const expected = held.state === "pending";
    try {
      await removeNode(this.#options.qmp(), diskId(name));
    } finally {
      if (this.#held.get(name) === held) this.#held.delete(name);
      this.#options.onRemoved(name, expected);
    }
  }
}

const disksAmong = (there: Peripherals): readonly string[] =>
  there.flatMap(({ name, type }) =>
    type === "child<virtio-blk-pci>" ? (diskName(name) ?? []) : [],
  );

/** Removes the node, and a descriptor that a plug was cut short with. Absent is success. */
async function removeNode(qmp: QmpClient, id: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await qmp.execute("blockdev-del", { "node-name": id });
      break;
    } catch (error) {
      if (!isPodnetError(error, "QMP_FAILED")) throw error;
      if (error.message.includes("Failed to find node")) break;
      if (!error.message.includes("in use") || attempt === inUse.attempts) throw error;
    }
    await delay(inUse.againMs);
  }
  for (const set of parseFdSets(await qmp.execute("query-fdsets", {}), id))
    await qmp.execute("remove-fd", { "fdset-id": set });
}

const newHeld = (state: Held["state"]): Held => ({
  state,
  left: false,
  leaving: Promise.withResolvers<void>(),
});

const refused = (name: string, state: Held["state"]): PodnetError =>
  new PodnetError("WRONG_STATE", `Disk "${name}" is ${state}`, {
    step: "disk.plug",
    hint: "Use another name, or wait until the guest has let go of it",
  });
