import { isPodnetError, PodnetError, toPodnetError } from "../../core/errors.ts";
import type { NicPlan } from "../driver.ts";
import type { QmpClient } from "../qmp/client.ts";
import { listPeripherals, type Peripherals } from "../qmp/peripherals.ts";
import { type MachineKind, nicSlots, slotOfPort } from "../argv/machine-kinds.ts";
import { leftWithin, throwIfAborted } from "./leaving.ts";
import { askToLeave, tolerateAbsence, undoPlug } from "./nic-removal.ts";
import { fdNames, plugCommands } from "../argv/plug-commands.ts";

type Ids = Pick<NicPlan, "nicId" | "netdevId" | "slot" | "bus">;

/**
 * plugging → plugged → unplugging → (gone | pending → gone). A guest may eject its NIC in any of
 * them; `left` says that QEMU has reported it.
 */
interface Held extends Ids {
  state: "plugging" | "plugged" | "unplugging" | "pending";
  left: boolean;
  readonly leaving: PromiseWithResolvers<void>;
  /** The unplug under way, shared by concurrent callers. */
  unplugging?: Promise<"unplugged" | "pending">;
}

export interface NicsOptions {
  /** The current session; throws when there is none. */
  readonly qmp: () => QmpClient;
  readonly kind: MachineKind;
  /** Milliseconds a guest gets to let go of a NIC, since the last one of several. */
  readonly unplugMs: number;
  /**
   * Called when a NIC left without being asked to (`expected` false), or after its unplug had timed
   * out.
   */
  readonly onRemoved: (nicId: string, expected: boolean) => void;
  /** Most queues that one of its NICs has; 1 unless given. */
  readonly queues?: number;
  /** How the ids of ours begin in a foreign machine, who may have NICs too. */
  readonly prefix?: string;
}

/** The places of one VM for NICs, and what is in them. */
export class Nics {
  readonly #options: NicsOptions;
  /** By `placeOf`. */
  readonly #held = new Map<string, Held>();
  /** When the guest last let go of a NIC that it was asked for. */
  #releasedAt = Number.NEGATIVE_INFINITY;

  constructor(options: NicsOptions) {
    this.#options = options;
  }

  /** getfd → netdev_add → device_add; see `RunningVm.plug`. */
  async plug(nic: NicPlan, tapFds: readonly number[], signal: AbortSignal): Promise<void> {
    const held = this.#take(nic);
    const qmp = this.#options.qmp();
    const commands = plugCommands(nic, this.#options.kind, tapFds.length);
    let asked: "getfd" | "netdev_add" | "device_add" = "getfd";
    try {
      // A command on its way is always awaited: only then is it known what has to be undone.
      for (const [queue, { fdname }] of commands.getfd.entries()) {
        throwIfAborted(signal);
        await qmp.passFd(fdname, tapFds[queue] as number);
      }
      throwIfAborted(signal);
      asked = "netdev_add";
      await qmp.execute("netdev_add", commands.netdev_add);
      throwIfAborted(signal);
      asked = "device_add";
      await qmp.execute("device_add", commands.device_add);
    } catch (error) {
      // A NIC that QEMU refused does not exist, and its id may belong to another NIC. Without an
      // answer it may exist.
      const refused = isPodnetError(error, "QMP_FAILED") && error.details["command"] === asked;
      const device = asked === "device_add" && !refused;
      const netdev = asked === "device_add" || (asked === "netdev_add" && !refused);
      const names = commands.getfd.map(({ fdname }) => fdname);
      const stays = await undoPlug(qmp, nic, names, { device, netdev });
      if (stays && qmp.closed === undefined) this.#awaitLeaving(held);
      else this.#free(held);
      throw toPodnetError(error).with({ step: "nic.plug", details: { nic: nic.nicId } });
    }
    held.state = "plugged";
    if (held.left) await this.#ejected(held);
  }

  /** device_del → DEVICE_DELETED → netdev_del; see `RunningVm.unplug`. */
  unplug(
    nic: Ids & Pick<NicPlan, "fdName">,
    signal: AbortSignal,
  ): Promise<"unplugged" | "pending"> {
    const held = this.#find(nic.nicId) ?? newHeld(nic, "plugged");
    if (held.state === "plugging") {
      const text = `NIC "${nic.nicId}" is being plugged and cannot be unplugged yet`;
      return Promise.reject(new PodnetError("WRONG_STATE", text, { step: "nic.unplug" }));
    }
    if (held.unplugging !== undefined) return held.unplugging;
    const unplugging = this.#unplug(held, nic.fdName, signal).finally(() => {
      delete held.unplugging;
    });
    held.unplugging = unplugging;
    return unplugging;
  }

  async #unplug(held: Held, fdName: string, signal: AbortSignal): Promise<"unplugged" | "pending"> {
    const qmp = this.#options.qmp();
    const { nicId, netdevId } = held;
    held.state = "unplugging";
    try {
      const there = await askToLeave(qmp, nicId);
      if (there) await leftWithin(held, qmp, this.#options.unplugMs, signal);
      // Traffic ends here, whatever the guest does; a plug cut short by a crash may have left the
      // descriptor.
      await tolerateAbsence(qmp.execute("netdev_del", { id: netdevId }));
      for (const fdname of fdNames({ fdName }, this.#options.queues ?? 1))
        await tolerateAbsence(qmp.execute("closefd", { fdname }));
      if (there) await this.#leftInTurn(held, qmp, signal);
      // `left` is set by the event listener, also while netdev_del was on its way.
      if (!there || held.left) {
        this.#free(held);
        return "unplugged";
      }
      this.#awaitLeaving(held);
    } catch (error) {
      this.#awaitLeaving(held);
      throw toPodnetError(error).with({ step: "nic.unplug", details: { nic: nicId } });
    }
    throwIfAborted(signal);
    return "pending";
  }

  /**
   * A guest lets go of one NIC after the other: while it goes on with others, this one's turn is
   * still to come. Each NIC there can be adds at most one wait.
   */
  async #leftInTurn(held: Held, qmp: QmpClient, signal: AbortSignal): Promise<void> {
    for (let turn = 0; turn < nicSlots && !held.left && !signal.aborted; turn++) {
      const leftMs = this.#releasedAt + this.#options.unplugMs - performance.now();
      if (leftMs <= 0 || qmp.closed !== undefined) return;
      await leftWithin(held, qmp, leftMs, signal);
    }
  }

  /** Whether the NIC is plugged, as far as is known. */
  has(nicId: string): boolean {
    return this.#find(nicId)?.state === "plugged";
  }

  /** NICs QEMU has now, in the order it names them. */
  async list(signal?: AbortSignal): Promise<readonly string[]> {
    const options = signal === undefined ? {} : { signal };
    return this.#among(await listPeripherals(this.#options.qmp(), options));
  }

  #among(there: Peripherals): readonly string[] {
    const { prefix = "" } = this.#options;
    return there
      .filter(({ name, type }) => type === "child<virtio-net-pci>" && name.startsWith(prefix))
      .map(({ name }) => name);
  }

  /**
   * Learns which slots are taken, in a VM that was started by an earlier daemon or after a lost
   * session, by what QEMU has now.
   */
  async observe(peripherals: Peripherals): Promise<void> {
    const there = this.#among(peripherals);
    for (const held of this.#held.values())
      if (held.state !== "plugging" && !there.includes(held.nicId)) this.deviceDeleted(held.nicId);
    for (const nicId of there) {
      if (this.#find(nicId) !== undefined) continue;
      const path = `/machine/peripheral/${nicId}`;
      const get = (property: string): Promise<unknown> =>
        this.#options.qmp().execute("qom-get", { path, property });
      // (All at once: podnetd adopts a hundred machines at its start.)
      const [place, netdev] = await Promise.all([this.#placeBy(get), get("netdev")]);
      const held = newHeld({ nicId, netdevId: String(netdev), ...place }, "plugged");
      this.#held.set(placeOf(held), held);
    }
  }

  /** Where a NIC is by its properties: with its bus where it can be on any. */
  async #placeBy(
    get: (property: string) => Promise<unknown>,
  ): Promise<Pick<NicPlan, "bus" | "slot">> {
    const { prefix, kind } = this.#options;
    // The device and function number: slot * 8 + function.
    const slot = Number(await get("addr")) >> 3;
    if (prefix === undefined && kind.nics === "bridge") return { slot };
    // A path, such as /machine/peripheral/port0/port0.
    const path = String(await get("parent_bus"));
    const bus = path.slice(path.lastIndexOf("/") + 1);
    return prefix === undefined ? { slot: slotOfPort(bus) } : { bus, slot };
  }

  /**
   * DEVICE_DELETED with this `device` has arrived. Answers whether it reported a NIC that was
   * there.
   */
  deviceDeleted(nicId: string): boolean {
    const held = this.#find(nicId);
    if (held === undefined || held.left) return false;
    held.left = true;
    if (held.state === "unplugging") this.#releasedAt = performance.now();
    held.leaving.resolve();
    if (held.state === "pending") {
      this.#free(held);
      this.#options.onRemoved(nicId, true);
    } else if (held.state === "plugged") {
      // A session lost meanwhile takes the answer with it; the netdev is then removed with the pod.
      void this.#ejected(held).catch(() => {});
    }
    return true;
  }

  async #ejected(held: Held): Promise<void> {
    try {
      await tolerateAbsence(this.#options.qmp().execute("netdev_del", { id: held.netdevId }));
    } finally {
      this.#free(held);
      this.#options.onRemoved(held.nicId, false);
    }
  }

  #find(nicId: string): Held | undefined {
    for (const held of this.#held.values()) if (held.nicId === nicId) return held;
    return undefined;
  }

  #take(nic: NicPlan): Held {
    const step = "nic.plug";
    const { slot } = nic;
    const known = nic.bus !== undefined || (slot >= 1 && slot <= nicSlots);
    if (!Number.isInteger(slot) || !known) {
      throw new PodnetError("NIC_SLOTS_FULL", `There is no NIC slot ${slot}`, {
        step,
        hint: `A VM takes ${nicSlots} NICs; unplug one first`,
      });
    }
    const holder = this.#held.get(placeOf(nic)) ?? this.#find(nic.nicId);
    if (holder !== undefined) {
      const pending = holder.state === "pending" || holder.state === "unplugging";
      throw new PodnetError(
        pending ? "NIC_UNPLUG_PENDING" : "WRONG_STATE",
        `NIC slot ${slot} is held by "${holder.nicId}", which is ${holder.state}`,
        {
          step,
          hint: pending
            ? "The guest has not let go of it yet; try again later or use another slot"
            : "Use another slot and id",
          details: { slot, holder: holder.nicId },
        },
      );
    }
    const held = newHeld(nic, "plugging");
    this.#held.set(placeOf(nic), held);
    return held;
  }

  /** Holds the slot until QEMU reports that the NIC has left, which it may have done already. */
  #awaitLeaving(held: Held): void {
    if (held.left) this.#free(held);
    else held.state = "pending";
  }

  #free(held: Held): void {
    if (this.#held.get(placeOf(held)) === held) this.#held.delete(placeOf(held));
  }
}

const placeOf = ({ bus = "", slot }: Ids): string => `${bus}/${slot}`;

function newHeld({ nicId, netdevId, slot, bus }: Ids, state: Held["state"]): Held {
  const leaving = Promise.withResolvers<void>();
  const where = bus === undefined ? { slot } : { slot, bus };
  return { nicId, netdevId, ...where, state, left: false, leaving };
}
