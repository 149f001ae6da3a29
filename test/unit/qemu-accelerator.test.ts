import test from "ava";
import { hasVirtualisation } from "../../hypervisor/qemu/accelerator.ts";

const cpuinfo = (...flags: readonly string[]): string =>
  flags
    .map(
      (line, n) => `processor\t: ${n}\nflags\t\t: fpu ${line} msr\nvmx flags\t: vnmi\nbugs\t\t:\n`,
    )
    .join("\n");

test("vmx or svm on every processor", (t) => {
  t.true(hasVirtualisation(cpuinfo("vmx", "vmx")));
  t.true(hasVirtualisation(cpuinfo("svm")));
  t.false(hasVirtualisation(cpuinfo("vmx", "sse")));
  t.false(hasVirtualisation(cpuinfo("svm_lock novmx")));
  t.false(hasVirtualisation(""));
});
