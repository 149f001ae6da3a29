import test from "ava";
import { kernelFault } from "../../../../hypervisor/argv/kernel-file.ts";

/** 4 KiB of nothing but what is given, as Latin-1, at its place. */
const head = (...marks: readonly (readonly [at: number, text: string])[]): Buffer => {
  const bytes = Buffer.alloc(4096);
  for (const [at, text] of marks) bytes.write(text, at, "latin1");
  return bytes;
};

const vmlinux = head([0, "\u007fELF\u0002"], [18, "\u003e"]);
const bzImage = head([0, "MZ"], [0x202, "HdrS"]);
/** With one section, which begins at 4 KiB and takes 8 more. */
const image = head(
  [0, "MZ"],
  [0x38, "ARM\u0064"],
  [0x3c, "\u0040"],
  [0x40, "PE"],
  [0x46, "\u0001"],
);
image.writeUInt32LE(8192, 0x58 + 16);
image.writeUInt32LE(4096, 0x58 + 20);

test("a kernel is of its machine's architecture", (t) => {
  t.is(kernelFault(vmlinux, 4096, "x86_64"), undefined);
  t.is(kernelFault(bzImage, 4096, "x86_64"), undefined);
  t.is(kernelFault(image, 12_288, "arm64"), undefined);
  const other = (kernel: string, machine: string): string =>
    `is a kernel for ${kernel}, and machines are of ${machine}`;
  for (const each of [vmlinux, bzImage])
    t.is(kernelFault(each, 4096, "arm64"), other("x86_64", "arm64"));
  t.is(kernelFault(image, 12_288, "x86_64"), other("arm64", "x86_64"));
});

test("what is no kernel that its machine boots", (t) => {
  const elfOfArm64 = head([0, "\u007fELF\u0002"], [18, "\u00b7"]);
  const compressed = head([0, "\u001f\u008b"]);
  for (const each of [elfOfArm64, compressed, head(), Buffer.alloc(0)]) {
    t.is(kernelFault(each, 4096, "x86_64"), "is neither an ELF vmlinux nor a bzImage");
    t.regex(kernelFault(each, 4096, "arm64") ?? "", /^is no Image of arm64, uncompressed/);
  }
});

test("an Image of arm64 that is cut short", (t) => {
  t.regex(kernelFault(image, 12_287, "arm64") ?? "", /^is cut short/);
  // A file that no firmware could start has no known length.
  t.is(kernelFault(head([0x38, "ARM\u0064"]), 100, "arm64"), undefined);
});
