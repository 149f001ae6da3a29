import { filterOf } from "../../../daemon/cri/seccomp/filter.ts";
import { parseProfile } from "../../../daemon/cri/seccomp/profile-file.ts";
import { json, type Target, textOf, utf8, valueOf } from "../engine/target.ts";

/** A profile becomes whole instructions of both architectures, or is refused. */
function profile(bytes: Uint8Array): void {
  const read = valueOf(["INVALID_ARGUMENT", "UNSUPPORTED"], () => parseProfile(textOf(bytes)));
  if (read === undefined) return;
  for (const architecture of ["x86_64", "arm64"] as const) {
    const { length } = filterOf(read, architecture);
    if (length === 0 || length % 8 !== 0) throw new Error(`A filter of ${length} bytes`);
  }
}

const denying = (...syscalls: unknown[]): Uint8Array =>
  json({ defaultAction: "SCMP_ACT_ERRNO", syscalls });
const rule = (over: object): Uint8Array =>
  denying({ names: ["read"], action: "SCMP_ACT_ALLOW", ...over });
const argument = (over: object): Uint8Array =>
  rule({ args: [{ index: 0, value: 1, op: "SCMP_CMP_EQ", ...over }] });

export const systemCallProfiles: Target = {
  name: "system-call-profiles",
  files: ["daemon/cri/seccomp/profile-file.ts"],
  seeds: [
    rule({}),
    rule({ names: ["read", "no-such-call"], errnoRet: 1 }),
    rule({ names: undefined, name: "read" }),
    rule({ names: [7] }),
    rule({ names: "read" }),
    rule({ action: "SCMP_ACT_NOTIFY" }),
    rule({ action: "SCMP_ACT_NONE" }),
    rule({ action: "SCMP_ACT_ERRNO", errnoRet: 4096 }),
    rule({ includes: { caps: ["CAP_SYS_ADMIN"] } }),
    rule({ includes: {}, excludes: {} }),
    rule({ includes: 7 }),
    argument({}),
    argument({ op: "SCMP_CMP_MASKED_EQ", valueTwo: 2 }),
    argument({ op: "SCMP_CMP_LT" }),
    argument({ op: "SCMP_CMP_NONE" }),
    argument({ index: 6 }),
    argument({ value: -1 }),
    argument({ value: 1.5 }),
    rule({
      args: [
        { index: 0, value: 1, op: "SCMP_CMP_GE" },
        { index: 0, value: 9, op: "SCMP_CMP_GT" },
      ],
    }),
    denying(7, null),
    json({ defaultAction: "SCMP_ACT_LOG" }),
    json({ defaultAction: "SCMP_ACT_KILL_PROCESS", defaultErrnoRet: 1, syscalls: {} }),
    json({ defaultAction: "SCMP_ACT_ALLOW", listenerPath: "/run/listener.sock" }),
    utf8("[]"),
    utf8("null"),
    utf8("{"),
  ],
  words: ["names", "action", "args", "index", "value", "op", "SCMP_ACT_ALLOW", "SCMP_CMP_NE"],
  run: profile,
};
