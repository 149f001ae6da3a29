import { bzImagePayload, payloadFormat } from "../../../guest-init/image/vmlinux.ts";
import { architectures } from "../../../hypervisor/architecture.ts";
import { kernelFault, kernelHeadBytes } from "../../../hypervisor/argv/kernel-file.ts";
import { qcow2End, qcow2Extensions, readQcow2 } from "../../../hypervisor/disks/qcow2-file.ts";
import { emptyQcow2 } from "../../../hypervisor/disks/qcow2-copy.ts";
import { type Target, valueOf } from "../engine/target.ts";

const elf = new Uint8Array(128);
elf.set([0x7f, 0x45, 0x4c, 0x46, 2]);
const elfView = new DataView(elf.buffer);
elfView.setBigUint64(32, 64n, true);
elfView.setUint16(54, 56, true);
elfView.setUint16(56, 1, true);
const bzImage = new Uint8Array(0x260);
bzImage.set([0x48, 0x64, 0x72, 0x53], 0x202);
const packed = (magic: readonly number[]): Uint8Array => {
  const image = new Uint8Array(3072);
  image.set(bzImage);
  image.set(magic, 2560);
  new DataView(image.buffer).setUint32(0x24c, 64, true);
  return image;
};
/** A kernel of arm64 that firmware could start as well, with one section. */
const arm64Image = new Uint8Array(192);
arm64Image.set([0x4d, 0x5a]);
arm64Image.set([0x41, 0x52, 0x4d, 0x64, 0x40], 0x38);
arm64Image.set([0x50, 0x45, 0, 0, 0x64, 0xaa, 1], 0x40);
new DataView(arm64Image.buffer).setUint32(0x58 + 16, 0x80, true);
const changed = (bytes: Uint8Array, at: number, value: number): Uint8Array =>
  Uint8Array.from(bytes, (byte, i) => (i === at ? value : byte));

const qcow2 = new Uint8Array(emptyQcow2(1 << 20).pieces[0]?.data ?? []);

/** As `lookAtDisk` reads one; where its tables should be are the same bytes again. */
function readWhole(image: Buffer, size: number): void {
  const header = readQcow2(image, size);
  if (typeof header === "string") return;
  const read = (at: number, length: number): Buffer =>
    image.subarray(Math.min(at % 4096, image.length)).subarray(0, Math.min(length, 4096));
  qcow2Extensions(header, read);
  qcow2End(header, size, read);
}

/** Kernels and disks people name, and kernels of a distribution's package. */
export const images: Target = {
  name: "image-files",
  files: [
    "hypervisor/argv/kernel-file.ts",
    "hypervisor/disks/qcow2-file.ts",
    "guest-init/image/vmlinux.ts",
  ],
  except: ["extractVmlinux", "unpackWith"],
  seeds: [
    elf,
    elf.subarray(0, 20),
    changed(elf, 4, 1),
    changed(elf, 18, 183),
    changed(elf, 57, 1),
    arm64Image,
    arm64Image.subarray(0, 0x3c),
    arm64Image.subarray(0, 0x48),
    changed(arm64Image, 0, 0),
    changed(arm64Image, 0x40, 0),
    changed(arm64Image, 0x46, 0),
    changed(arm64Image, 0x46, 9),
    bzImage,
    changed(bzImage, 0x1f1, 9),
    packed([0x02, 0x21, 0x4c, 0x18]),
    packed([0x28, 0xb5, 0x2f, 0xfd]),
    packed([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]),
    packed([0x1f, 0x8b]),
    packed([1]),
    qcow2,
    qcow2.subarray(0, 79),
    changed(qcow2, 15, 1),
    changed(qcow2, 35, 1),
    changed(qcow2, 79, 2),
    changed(qcow2, 79, 4),
    changed(qcow2, 79, 16),
    changed(qcow2, 79, 32),
    changed(qcow2, 7, 2),
    changed(qcow2, 7, 4),
    changed(qcow2, 23, 9),
    changed(qcow2, 23, 22),
    changed(qcow2, 99, 7),
  ],
  lengths: () =>
    [
      18, 20, 24, 28, 32, 36, 40, 44, 48, 52, 54, 56, 60, 70, 72, 84, 96, 104, 108, 0x1f1, 0x1f4,
      0x248, 0x24c,
    ].map((at) => ({
      at,
      bytes: 4,
      littleEndian: true,
    })),
  longest: kernelHeadBytes,
  run: (bytes) => {
    for (const arch of architectures)
      for (const size of [0, bytes.length, 2 ** 40]) kernelFault(Buffer.from(bytes), size, arch);
    for (const size of [bytes.length, 2 ** 40]) readWhole(Buffer.from(bytes), size);
    const payload = valueOf(["IMAGE_UNREADABLE"], () => bzImagePayload(Buffer.from(bytes)));
    if (payload !== undefined) valueOf(["IMAGE_UNREADABLE"], () => payloadFormat(payload));
  },
};
