import { bzImagePayload, payloadFormat } from "../../../guest-init/image/vmlinux.ts";
import { kernelFault, kernelHeadBytes } from "../../../hypervisor/qemu/kernel-file.ts";
import { qcow2Fault } from "../../../hypervisor/qemu/qcow2-file.ts";
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
const changed = (bytes: Uint8Array, at: number, value: number): Uint8Array =>
  Uint8Array.from(bytes, (byte, i) => (i === at ? value : byte));

const qcow2 = new Uint8Array(80);
qcow2.set([0x51, 0x46, 0x49, 0xfb, 0, 0, 0, 3]);

/** Kernels and disks people name, and kernels of a distribution's package. */
export const images: Target = {
  name: "image-files",
  files: [
    "hypervisor/qemu/kernel-file.ts",
    "hypervisor/qemu/qcow2-file.ts",
    "guest-init/image/vmlinux.ts",
  ],
  except: ["extractVmlinux", "unpackWith"],
  seeds: [
    elf,
    elf.subarray(0, 20),
    changed(elf, 4, 1),
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
    changed(qcow2, 79, 4),
    changed(qcow2, 7, 2),
  ],
  lengths: () =>
    [32, 36, 54, 56, 72, 96, 0x1f1, 0x1f4, 0x248, 0x24c].map((at) => ({
      at,
      bytes: 4,
      littleEndian: true,
    })),
  longest: kernelHeadBytes,
  run: (bytes) => {
    for (const size of [0, bytes.length, 2 ** 40]) kernelFault(Buffer.from(bytes), size);
    for (const alone of [false, true]) qcow2Fault(Buffer.from(bytes), alone);
    const payload = valueOf(["IMAGE_UNREADABLE"], () => bzImagePayload(Buffer.from(bytes)));
    if (payload !== undefined) valueOf(["IMAGE_UNREADABLE"], () => payloadFormat(payload));
  },
};
