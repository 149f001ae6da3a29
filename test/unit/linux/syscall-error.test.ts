import test from "ava";
import { errnoName } from "../../../linux/rtnetlink/errno.ts";
import { errnoHint, fileError, syscallError } from "../../../linux/syscall-error.ts";

const hint = "Load the module";
const numberOf = (name: string): number => {
  for (let errno = 1; errno < 134; errno++) if (errnoName(errno) === name) return errno;
  throw new Error(name);
};

test("whoever lacks descriptors learns which limit to raise, whatever the caller would advise", (t) => {
  for (const name of ["EMFILE", "ENFILE"]) {
    const errno = numberOf(name);
    t.regex(errnoHint(name) ?? "", /^Raise the limit of open files/);
    t.is(syscallError("open", errno, "Cannot open it", { hint }).hint, errnoHint(name));
    const thrown = Object.assign(new Error(name), { errno: -errno, syscall: "open" });
    t.is(fileError(thrown, "Cannot open it", { hint }).hint, errnoHint(name));
  }
});

test("what the caller advises comes before what is said of any call", (t) => {
  const errno = numberOf("EACCES");
  t.is(syscallError("open", errno, "Cannot open it", { hint }).hint, hint);
  t.is(syscallError("open", errno, "Cannot open it").hint, errnoHint("EACCES"));
});

test("the number of an error has a name, also where Node gives it without its minus", (t) => {
  for (const errno of [13, -13]) {
    const { message } = fileError(Object.assign(new Error(), { errno, syscall: "rm" }), "Cannot");
    t.is(message, "Cannot: rm failed with EACCES");
  }
});
