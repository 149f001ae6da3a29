import { closeSync } from "node:fs";
import { lastErrno, ioctlPointer } from "../../linux/ffi/libc.ts";
import type { CommandLine, Device } from "./command-line.ts";
import type { Json } from "./arguments.ts";
import { DiskFiles } from "./disk-files.ts";
import { Growth } from "./growth.ts";
import { noDevice, QmpError } from "./qmp-error.ts";

/** A NIC on the hot-plug bridge. */
export interface Nic {
  readonly id: string;
  readonly slot: number;
  readonly mac: string;
  readonly netdev: string;
  /** Its number among the devices that were ever on the bus. */
  readonly index: number;
  /** Whether its netdev is still behind it. */
  backed: boolean;
  /** Milliseconds of the last request to let go of it. */
  askedAt: number | undefined;
}

/** A disk on the hot-plug bridge. */
export interface Disk {
  readonly id: string;
  readonly slot: number;
  /** Its node. */
  readonly drive: string;
  askedAt: number | undefined;
}

/** What the machine sends to its guest, and outside. */
export interface MachineListener {
  event(name: string, data?: Json): void;
  /** The processors run, for the first time or again. */
  running(): void;
  reset(): void;
  powerButton(): void;
  /** A NIC has come, with the tap's descriptor behind it. */
  plugged(nic: Nic, tapFd: number): void;
  /** The guest is asked to let go of a NIC or a disk; it answers with `eject`. */
  askedToLeave(device: Nic | Disk): void;
  unplugged(nic: Nic): void;
}

/** The type of the devices that are NICs. */
export const nicDriver = "virtio-net-pci";
export const diskDriver = "virtio-blk-pci";
export const hotplugBridge = "pcie-pci-bridge";
/**
 * An unplug asked for again within this time is refused, milliseconds (ACPI hot-plug of QEMU 7.2).
 */
const unplugAgainMs = 1;
const tunGetIff = 0x800454d2;
const ENOTTY = 25;

/** What of the command line makes a machine. */
type MachineLine = Pick<CommandLine, "devices" | "paused" | "memoryMib" | "processors" | "room">;

/** What a NIC has whose owner names no address. */
const firstMac = "52:54:00:12:34:56";

/** State and devices of a machine, under the rules of QEMU 7.2. */
export class Machine {
  readonly #listener: MachineListener;
  readonly fixed: readonly Device[];
  readonly nics = new Map<string, Nic>();
  readonly disks = new Map<string, Disk>();
  readonly diskFiles = new DiskFiles();
  readonly #files = new Map<string, number>();
  readonly #netdevs = new Map<string, number>();
  status: "prelaunch" | "running" | "paused";
  readonly growth: Growth;
  /** Devices that ever were on the hot-plug bridge. */
  #indices = 0;

  constructor({ devices, paused, ...size }: MachineLine, listener: MachineListener) {
    this.fixed = devices.filter(({ driver }) => driver !== nicDriver);
    this.status = paused ? "prelaunch" : "running";
    this.growth = new Growth(size);
    this.#listener = listener;
    for (const { id, driver, slot = 0 } of devices)
      if (driver === nicDriver)
        this.nics.set(id, {
          id,
          slot,
          mac: firstMac,
          netdev: "",
          index: this.#indices++,
          backed: false,
          askedAt: undefined,
        });
  }

  cont(): void {
    if (this.status === "running") return;
    this.status = "running";
    this.#listener.event("RESUME");
    this.#listener.running();
    for (const device of this.#plugged())
      if (device.askedAt !== undefined) this.#listener.askedToLeave(device);
  }

  stop(): void {
    if (this.status !== "running") return;
    this.status = "paused";
    this.#listener.event("STOP");
  }

  reset(guest: boolean): void {
    const reason = guest ? "guest-reset" : "host-qmp-system-reset";
    this.#listener.event("RESET", { guest, reason });
    // A reset lets go of what was asked for.
    const leaving = this.#plugged().filter(({ askedAt }) => askedAt !== undefined);
    setImmediate(() => leaving.forEach((device) => this.#remove(device)));
    this.#listener.reset();
  }

  powerButton(): void {
    this.#listener.event("POWERDOWN");
    this.#listener.powerButton();
  }

  /** `getfd`: a name that is taken gets the new descriptor. */
  keepFile(name: string, fd: number): void {
    const before = this.#files.get(name);
    if (before !== undefined) closeSync(before);
    this.#files.set(name, fd);
  }

  closeFile(name: string): void {
    const fd = this.#files.get(name);
    if (fd === undefined) throw new QmpError(`File descriptor named '${name}' not found`);
    this.#files.delete(name);
    closeSync(fd);
  }

  addTap(id: string, fdName: string): void {
    if (this.#netdevs.has(id)) throw new QmpError(`Duplicate ID '${id}'`);
    const fd = this.#files.get(fdName);
    if (fd === undefined)
      throw new QmpError(`File descriptor named '${fdName}' has not been found`);
    // Looked up, the name is used up, whatever becomes of it.
    this.#files.delete(fdName);
    if (ioctlPointer(fd, tunGetIff, new Uint8Array(40)) < 0) {
      const why =
        lastErrno() === ENOTTY ? "Inappropriate ioctl for device" : "File descriptor in bad state";
      closeSync(fd);
      throw new QmpError(`Unable to query TUNGETIFF on FD ${fd}: ${why}`);
    }
    this.#netdevs.set(id, fd);
  }

  removeNetdev(id: string): void {
    const fd = this.#netdevs.get(id);
    if (fd === undefined) throw noDevice(id);
    this.#netdevs.delete(id);
    // A NIC stays without its back end until the guest lets go of it.
    const nic = this.#nicOf(id);
    if (nic !== undefined) {
      nic.backed = false;
      this.#listener.unplugged(nic);
    }
    closeSync(fd);
  }

  /** Whether the netdev is there, and free. */
  checkNetdev(id: string): void {
    const property = "Property 'virtio-net-device.netdev'";
    if (!this.#netdevs.has(id)) throw new QmpError(`${property} can't find value '${id}'`);
    if (this.#nicOf(id) !== undefined)
      throw new QmpError(`${property} can't take value '${id}', it's in use`);
  }

  #nicOf(netdevId: string): Nic | undefined {
    return [...this.nics.values()].find(({ netdev, backed }) => backed && netdev === netdevId);
  }

  addNic(nic: Omit<Nic, "index" | "askedAt" | "backed">): void {
    // It is on the bus before its place there is looked at.
    const index = this.#indices++;
    this.#checkSlot(nic.slot, nicDriver);
    const added = { ...nic, index, backed: true, askedAt: undefined };
    this.nics.set(nic.id, added);
    this.#listener.plugged(added, this.#netdevs.get(nic.netdev) as number);
  }

  addDisk(disk: Omit<Disk, "askedAt">): void {
    this.#indices++;
    this.#checkSlot(disk.slot, diskDriver);
    this.disks.set(disk.id, { ...disk, askedAt: undefined });
  }

  #plugged(): (Nic | Disk)[] {
    return [...this.nics.values(), ...this.disks.values()];
  }

  #checkSlot(slot: number, driver: string): void {
    const holder = this.#plugged().find((device) => device.slot === slot);
    if (holder === undefined) return;
    const held = this.disks.has(holder.id) ? diskDriver : nicDriver;
    throw new QmpError(
      `PCI: slot ${slot} function 0 not available for ${driver}, in use by ${held},id=${holder.id}`,
    );
  }

  hasId(id: string): boolean {
    const isGrowth = this.growth.devices.some(([device]) => device === id);
    return (
      isGrowth ||
      this.nics.has(id) ||
      this.disks.has(id) ||
      this.fixed.some((device) => device.id === id)
    );
  }

  /** A processor or memory is plugged in, and the guest looks at it at once. */
  grow(args: Json): void {
    this.growth.addDevice(args);
    const info = {
      device: String(args["id"]),
      source: 1,
      status: 0,
      slot: "0",
      "slot-type": "CPU",
    };
    if (this.status === "running") this.#listener.event("ACPI_DEVICE_OST", { info });
  }

  /** By id, or by path in the object tree. */
  askToLeave(name: string): void {
    const id = name.replace(/^\/machine\/peripheral\//, "");
    const fixed = this.fixed.find((device) => device.id === id);
    if (fixed !== undefined) throw new QmpError(`Bus '${fixed.bus}' does not support hotplugging`);
    const device = this.nics.get(id) ?? this.disks.get(id);
    if (device === undefined) throw noDevice(name);
    const { askedAt } = device;
    device.askedAt = performance.now();
    if (askedAt !== undefined && device.askedAt - askedAt < unplugAgainMs)
      throw new QmpError(`Device ${id} is already in the process of unplug`);
    if (this.status === "running") this.#listener.askedToLeave(device);
  }

  /** The guest lets go of a NIC or a disk, asked or not. */
  eject(device: Nic | Disk): void {
    const there = this.nics.get(device.id) ?? this.disks.get(device.id);
    if (there === device && this.status === "running") this.#remove(device);
  }

  #remove(device: Nic | Disk): void {
    const nic = this.nics.get(device.id);
    if (!this.nics.delete(device.id) && !this.disks.delete(device.id)) return;
    if (nic?.backed === true) this.#listener.unplugged(nic);
    const path = `/machine/peripheral/${device.id}`;
    this.#listener.event("DEVICE_DELETED", { path: `${path}/virtio-backend` });
    this.#listener.event("DEVICE_DELETED", { device: device.id, path });
  }
}
