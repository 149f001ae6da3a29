import test from "ava";
import { isPodnetError } from "../../../../core/errors.ts";
import { architectures, hostArchitecture } from "../../../../hypervisor/architecture.ts";
import {
  chooseAccelerator,
  hasSteadyTsc,
  hasVirtualisation,
} from "../../../../hypervisor/argv/accelerator.ts";

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

test("a TSC is steady that has one rate and does not stop, on every processor", (t) => {
  t.true(hasSteadyTsc(cpuinfo("constant_tsc nonstop_tsc", "nonstop_tsc sse constant_tsc")));
  t.false(hasSteadyTsc(cpuinfo("constant_tsc nonstop_tsc", "constant_tsc")));
  t.false(hasSteadyTsc(cpuinfo("constant_tsc", "nonstop_tsc")));
  t.false(hasSteadyTsc(cpuinfo("nonstop_tsc_s3 constant_tsc")));
  t.false(hasSteadyTsc(""));
});

test("guests of another architecture are emulated, whatever the processor offers", (t) => {
  for (const arch of architectures.filter((each) => each !== hostArchitecture)) {
    t.is(chooseAccelerator("auto", arch), "tcg");
    const error = t.throws(() => chooseAccelerator("on", arch));
    t.true(isPodnetError(error, "PREFLIGHT_FAILED"));
    t.regex(error.message, new RegExp(`is of ${hostArchitecture}, and guests are of ${arch}`));
  }
});
