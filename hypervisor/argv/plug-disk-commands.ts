import type { HotDiskPlan } from "../driver.ts";
import { imageNode } from "../disks/disk-argv.ts";
import { type MachineKind, nicAddress } from "./machine-kinds.ts";

/**
 * The QMP commands that plug a disk whose file is in the set `set`, in order. The bus and the slots
 * are those of NICs. Pure.
 */
export function plugDiskCommands(disk: HotDiskPlan, kind: MachineKind, set: number) {
  const { id, serial, path, format, readOnly, slot } = disk;
  const { bus, addr } = nicAddress({ slot }, kind);
  return {
    "blockdev-add": { "node-name": id, ...imageNode({ path, format, readOnly }, set) },
    device_add: {
      driver: "virtio-blk-pci",
      id,
      bus,
      addr: `0x${addr.toString(16)}`,
      drive: id,
      serial,
    },
  } as const;
}
