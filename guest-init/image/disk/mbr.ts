import { PodnetError } from "../../../core/errors.ts";

export const sectorBytes = 512;
/** Where partitions begin: the sectors before are the bootloader's. */
export const firstPartitionSector = 2048;

/** Boot code of a master boot record; the disk's signature and the table of partitions follow. */
const bootCodeBytes = 440;
const tableAt = 446;
const signatureAt = 510;
const active = 0x80;
const linuxPartition = 0x83;
/** Where GRUB's boot sector (2.06, boot.S) has the number of the sector it loads, and the drive. */
const grubNextSectorAt = 0x5c;

/**
 * The sectors before the first partition: a master boot record with GRUB's boot code and one
 * partition that reaches to the disk's end, and behind it GRUB's core image, which boot sector and
 * core expect there. Throws `PREFLIGHT_FAILED` when they are not of that kind.
 */
export function bootSectors(boot: Buffer, core: Buffer, diskBytes: number): Buffer {
  const refuse = (what: string): never => {
    throw new PodnetError("PREFLIGHT_FAILED", `GRUB's ${what}`, {
      hint: "Use Debian 12's grub-pc-bin",
    });
  };
  if (boot.length !== sectorBytes || boot.readUInt16LE(signatureAt) !== 0xaa55)
    refuse("boot.img is no boot sector");
  if (boot.readBigUInt64LE(grubNextSectorAt) !== 1n) refuse("boot.img wants its core elsewhere");
  if (core.length > (firstPartitionSector - 1) * sectorBytes)
    refuse(`core.img has ${core.length} bytes, too many for the sectors before the partition`);
  const sectors = Buffer.alloc(firstPartitionSector * sectorBytes);
  boot.copy(sectors, 0, 0, bootCodeBytes);
  const entry = sectors.subarray(tableAt, tableAt + 16);
  entry[0] = active;
  // Cylinder, head and sector, unused for decades: the value means "see the numbers below".
  entry.fill(0xff, 1, 4).fill(0xff, 5, 8);
  entry[4] = linuxPartition;
  entry.writeUInt32LE(firstPartitionSector, 8);
  entry.writeUInt32LE(diskBytes / sectorBytes - firstPartitionSector, 12);
  sectors.writeUInt16LE(0xaa55, signatureAt);
  core.copy(sectors, sectorBytes);
  return sectors;
}
