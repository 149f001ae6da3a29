/** As much of a qcow2 image as its fixed header and the feature bits take. */
export const qcow2HeadBytes = 80;

const externalData = 4n;

/**
 * What is wrong with a qcow2 image by its first bytes (QEMU's docs/interop/qcow2.txt); undefined when QEMU may try it.
 * `alone`: other files that it names are not there for QEMU. Whoever wrote the image chose their names, so
 * that without a jail a guest reads any file of the host that QEMU may.
 */
export function qcow2Fault(head: Buffer, alone: boolean): string | undefined {
  if (head.subarray(0, 4).toString("latin1") !== "QFI\u00fb") return "is not a qcow2 image";
  if (!alone || head.length < qcow2HeadBytes) return undefined;
  if (head.readBigUInt64BE(8) !== 0n) return "has a backing file, which a machine does not see";
  const features = head.readUInt32BE(4) >= 3 ? head.readBigUInt64BE(72) : 0n;
  if ((features & externalData) !== 0n)
    return "has its data in another file, which a machine does not see";
  return undefined;
}
