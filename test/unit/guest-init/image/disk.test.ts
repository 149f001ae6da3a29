import test from "ava";
import { isPodnetError } from "../../../../core/errors.ts";
import {
  bootSectors,
  firstPartitionSector,
  sectorBytes,
} from "../../../../guest-init/image/disk/mbr.ts";

const mib = 1024 * 1024;

/** As GRUB's boot.img: code, the core's sector, bytes where the table goes, the signature. */
function bootImage(): Buffer {
  const boot = Buffer.alloc(sectorBytes, 0x90);
  boot.writeBigUInt64LE(1n, 0x5c);
  boot.writeUInt16LE(0xaa55, 510);
  return boot;
}

test("boot sectors are GRUB's code, one partition up to the disk's end, and the core behind it", (t) => {
  const core = Buffer.alloc(30_000, 7);
  const sectors = bootSectors(bootImage(), core, 1024 * mib);
  t.is(sectors.length, firstPartitionSector * sectorBytes);
  t.deepEqual(sectors.subarray(0, 440), bootImage().subarray(0, 440));
  t.is(
    sectors.subarray(446, 462).toString("hex"),
    ["80", "ffffff", "83", "ffffff", "00080000", "00f81f00"].join(""),
  );
  t.true(sectors.subarray(462, 510).every((byte) => byte === 0));
  t.is(sectors.readUInt16LE(510), 0xaa55);
  t.deepEqual(sectors.subarray(512, 512 + core.length), core);
});

test("what is not GRUB's, or too large, is no bootloader", (t) => {
  const elsewhere = bootImage();
  elsewhere.writeBigUInt64LE(5n, 0x5c);
  const blank = bootImage().fill(0, 510);
  for (const [boot, core] of [
    [elsewhere, Buffer.alloc(512)],
    [blank, Buffer.alloc(512)],
    [bootImage().subarray(1), Buffer.alloc(512)],
    [bootImage(), Buffer.alloc(mib)],
  ] as const) {
    const error = t.throws(() => bootSectors(boot, core, 1024 * mib));
    t.true(isPodnetError(error, "PREFLIGHT_FAILED"));
  }
});
