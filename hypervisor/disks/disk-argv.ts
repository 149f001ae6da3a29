import type { DiskPlan, OverlayPlan, VmPlan } from "../driver.ts";
import type { BlockNode } from "../qmp/commands.ts";

/** A disk's node and device, by its place in the plan. */
export const diskNode = (index: number): string => `disk${index}`;

/** Addresses on pcie.0 from here to 0x1e hold disks; the chipset is at 0x1f. */
const firstDiskSlot = 8;

/** Where the seed disk is: after the last disk. */
const seedSlot = 0x18;
const seedNode = "seed";

/**
 * The files a QEMU inherits for these disks, in order: of each its image, then its overlay, and the
 * seed disk last. `openDisks` opens them so.
 */
export const diskFiles = ({ disks, seed }: Pick<VmPlan, "disks" | "seed">): string[] => [
  ...disks.flatMap(({ path, overlay }) => (overlay === undefined ? [path] : [path, overlay.path])),
  ...(seed === undefined ? [] : [seedNode]),
];

/**
 * QEMU's arguments for the disks. podnetd opens the disks and QEMU inherits them, from descriptor
 * `firstFd` on, so QEMU needs no right to a path. Each file is a set of one descriptor, with its
 * path alongside for people to read.
 */
export function diskWords(plan: VmPlan, firstFd: number): string[] {
  const { disks, kernel } = plan;
  const opened = diskFiles(plan).flatMap((path, set) => [
    "-add-fd",
    `fd=${firstFd + set},set=${set},opaque=${path.replaceAll(",", ",,")}`,
  ]);
  let set = 0;
  const words = disks.flatMap((disk, index) => {
    const image = imageNode(disk, set++);
    const top = disk.overlay === undefined ? image : overlayNode(image, disk.overlay, set++);
    const node = diskNode(index);
    const slot = `0x${(firstDiskSlot + index).toString(16)}`;
    const boots = kernel === undefined && index === 0 ? ",bootindex=1" : "";
    return [
      "-blockdev",
      JSON.stringify({ "node-name": node, ...top }),
      "-device",
      `virtio-blk-pci,id=${node},drive=${node},serial=${node},bus=pcie.0,addr=${slot}${boots}`,
    ];
  });
  return [...opened, ...words, ...(plan.seed === undefined ? [] : seedWords(set))];
}

function seedWords(set: number): string[] {
  const file = { driver: "file", filename: `/dev/fdset/${set}`, "read-only": true };
  const node = { "node-name": seedNode, driver: "raw", "read-only": true, file };
  return [
    "-blockdev",
    JSON.stringify(node),
    "-device",
    `virtio-blk-pci,id=${seedNode},drive=${seedNode},serial=${seedNode},bus=pcie.0,addr=0x${seedSlot.toString(16)}`,
  ];
}

/** Where block devices usually are. */
export const inDev = (path: string): boolean => path.startsWith("/dev/");

/**
 * As JSON, where nothing has to be escaped. Formats are never guessed from what a guest wrote, nor
 * are other files opened that an image names.
 */
export function imageNode(
  { path, format, readOnly, overlay, isDevice = inDev(path) }: DiskPlan,
  set: number,
): Omit<BlockNode, "node-name"> {
  const unchanged = readOnly || overlay !== undefined;
  return {
    driver: format,
    "read-only": unchanged,
    ...(format === "qcow2" ? { backing: null } : {}),
    file: {
      // (QEMU refuses the other driver.)
      driver: isDevice ? "host_device" : "file",
      filename: `/dev/fdset/${set}`,
      "read-only": unchanged,
    },
  };
}

function overlayNode(image: object, { maxBytes }: OverlayPlan, set: number): object {
  const file = { driver: "file", filename: `/dev/fdset/${set}`, "read-only": false };
  return {
    driver: "qcow2",
    "read-only": false,
    // A write beyond the maximum fails for lack of space, at which QEMU pauses the machine
    // (werror=enospc, its default).
    file: maxBytes === undefined ? file : { driver: "raw", size: maxBytes, file },
    backing: image,
  };
}
