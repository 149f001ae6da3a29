import { type Argument, answer, type Profile, type Rule } from "./filter.ts";

const eperm = 1;
const enosys = 38;
const denied = answer.fail(eperm);

/** CLONE_NEW* of clone(2), but for the namespace of time, which it cannot make. */
const newNamespaces = 0x7e020000n;
const vsock = 40n;
/** What personality(2) may be asked for: Linux, with or without its layout of addresses fixed. */
const personalities = [0n, 8n, 0x20000n, 0x20008n, 0xffffffffn];

/** Calls that are of use with one of these capabilities alone, and reach much of the kernel. */
const withCapability: readonly (readonly [readonly string[], string])[] = [
  [
    ["SYS_ADMIN"],
    "mount umount2 pivot_root mount_setattr move_mount open_tree fsopen fsmount fsconfig fspick " +
      "setns unshare sethostname setdomainname fanotify_init quotactl quotactl_fd swapon swapoff " +
      "lookup_dcookie",
  ],
  [["SYS_ADMIN", "BPF"], "bpf"],
  [["SYS_ADMIN", "PERFMON"], "perf_event_open"],
  [["SYS_ADMIN", "SYSLOG"], "syslog"],
  [["SYS_BOOT"], "reboot kexec_load kexec_file_load"],
  [["SYS_MODULE"], "init_module finit_module delete_module"],
  [["SYS_PACCT"], "acct"],
  [["SYS_PTRACE"], "kcmp process_madvise pidfd_getfd"],
  [["SYS_RAWIO"], "iopl ioperm"],
  [["SYS_TIME"], "settimeofday clock_settime"],
  [["SYS_TTY_CONFIG"], "vhangup"],
  [["DAC_READ_SEARCH"], "open_by_handle_at"],
  [["SYS_NICE"], "mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages"],
];

/** Keys know no namespaces; the others are old, or a way into the kernel that few programs need. */
const never =
  "add_key keyctl request_key userfaultfd io_uring_setup io_uring_enter io_uring_register " +
  "nfsservctl _sysctl uselib ustat sysfs create_module get_kernel_syms query_module";

/**
 * podnet's own profile, which Kubernetes calls RuntimeDefault: all calls but those that a container
 * without the capability for them has no use for. Each fails as it would without the filter. Pure.
 */
export function runtimeDefault(capabilities: ReadonlySet<string>): Profile {
  const has = (...names: string[]): boolean => names.some((name) => capabilities.has(name));
  const rules: Rule[] = withCapability
    .filter(([wanted]) => !has(...wanted))
    .map(([, names]) => ({ names: names.split(" "), answer: denied }));
  rules.push({ names: never.split(" "), answer: denied });
  if (!has("SYS_ADMIN"))
    rules.push(
      { names: ["clone"], args: [hasNone(0, newNamespaces)], answer: answer.allow },
      { names: ["clone"], answer: denied },
      // Its flags are in memory, where no filter sees them. libc then takes clone.
      { names: ["clone3"], answer: answer.fail(enosys) },
    );
  rules.push(
    { names: ["socket"], args: [{ index: 0, is: "==", value: vsock }], answer: denied },
    ...personalities.map((value) => ({
      names: ["personality"],
      args: [{ index: 0, is: "==", value } as const],
      answer: answer.allow,
    })),
    { names: ["personality"], answer: denied },
  );
  return { otherwise: answer.allow, rules, unknown: answer.fail(enosys) };
}

const hasNone = (index: number, mask: bigint): Argument => ({
  index,
  is: "masked",
  mask,
  value: 0n,
});
