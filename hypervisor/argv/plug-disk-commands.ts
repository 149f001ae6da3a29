import type { HotDiskPlan } from "../driver.ts";
import { imageNode } from "../disks/disk-argv.ts";
import { type MachineKind, nicAddress } from "./machine-kinds.ts";

/** How the ids of plugged disks begin, before their names. */
const prefix = "data-";

/** The id of QEMU's device and node. */
export const diskId = (name: string): string => `${prefix}${name}`;

/** The name behind an id; undefined for what is no plugged disk. */
export const diskName = (id: string): string | undefined =>
  id.startsWith(prefix) ? id.slice(prefix.length) : undefined;

/**
 * The QMP commands that plug a disk whose file is in the set `set`, in order. The bus and the slots
 * are those of NICs. Pure.
 */
export function plugDiskCommands(disk: HotDiskPlan, kind: MachineKind, set: number) {
  const { name, slot } = disk;
  const id = diskId(name);
  const { bus, addr } = nicAddress({ slot }, kind);
  return {
    "blockdev-add": { "node-name": id, ...imageNode(disk, set) },
    device_add: {
      driver: "virtio-blk-pci",
      id,
      bus,
      addr: `0x${addr.toString(16)}`,
      drive: id,
      serial: name,
    },
  } as const;
}
