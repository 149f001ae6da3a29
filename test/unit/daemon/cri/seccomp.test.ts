import test from "ava";
import {
  answer,
  type Comparison,
  filterOf,
  type Profile,
} from "../../../../daemon/cri/seccomp/filter.ts";
import { parseProfile } from "../../../../daemon/cri/seccomp/profile-file.ts";
import { runtimeDefault } from "../../../../daemon/cri/seccomp/runtime-default.ts";
import { systemCalls } from "../../../../daemon/cri/seccomp/system-calls.ts";

const native = { x86_64: 0xc000003e, arm64: 0xc00000b7 } as const;
type Arch = keyof typeof native;

/** As the kernel runs a filter: written from its documentation, apart from the compiler. */
function run(filter: Uint8Array, data: Uint8Array): number {
  const [code, input] = [filter, data].map((each) => new DataView(each.buffer));
  if (code === undefined || input === undefined) throw new Error("Nothing to run");
  let a = 0;
  for (let pc = 0; ; pc++) {
    const at = pc * 8;
    const k = code.getUint32(at + 4, true);
    const branch = (is: boolean): void => void (pc += code.getUint8(at + (is ? 2 : 3)));
    switch (code.getUint16(at, true)) {
      case 0x20:
        a = input.getUint32(k, true);
        break;
      case 0x54:
        a = (a & k) >>> 0;
        break;
      case 0x05:
        pc += k;
        break;
      case 0x15:
        branch(a === k);
        break;
      case 0x25:
        branch(a > k);
        break;
      case 0x35:
        branch(a >= k);
        break;
      case 0x06:
        return k;
      default:
        throw new Error(`No such instruction at ${pc}`);
    }
  }
}

function call(
  arch: Arch,
  number: number,
  args: readonly bigint[] = [],
  asArch: number = native[arch],
) {
  const data = new Uint8Array(64);
  const view = new DataView(data.buffer);
  view.setUint32(0, number, true);
  view.setUint32(4, asArch, true);
  for (const [i, value] of args.entries()) view.setBigUint64(16 + 8 * i, value, true);
  return data;
}

const numberOf = (name: string, arch: Arch = "x86_64"): number => {
  const number = systemCalls[arch].get(name);
  if (number === undefined) throw new Error(`${arch} has no ${name}`);
  return number;
};

/** What becomes of a call by its name. */
const answerTo = (profile: Profile, name: string, args: readonly bigint[] = []): number =>
  run(filterOf(profile, "x86_64"), call("x86_64", numberOf(name), args));

const eperm = answer.fail(1);
const enosys = answer.fail(38);

test("the numbers of system calls are the kernel's", (t) => {
  for (const [name, x86, arm] of [
    ["read", 0, 63],
    ["openat", 257, 56],
    ["clone3", 435, 435],
    ["mount", 165, 40],
    ["execve", 59, 221],
    ["setns", 308, 268],
    ["faccessat2", 439, 439],
  ] as const) {
    t.is(numberOf(name), x86, name);
    t.is(numberOf(name, "arm64"), arm, name);
  }
  t.is(systemCalls.arm64.get("open"), undefined);
});

test("each comparison is one of 64 bits", (t) => {
  const values = [0n, 1n, 2n, 0xffffffffn, 1n << 32n, (1n << 32n) + 1n, (1n << 63n) + 5n];
  const holds: Readonly<Record<Exclude<Comparison, "masked">, (a: bigint, b: bigint) => boolean>> =
    {
      "==": (a, b) => a === b,
      "!=": (a, b) => a !== b,
      "<": (a, b) => a < b,
      "<=": (a, b) => a <= b,
      ">": (a, b) => a > b,
      ">=": (a, b) => a >= b,
    };
  const otherwise = answer.allow;
  for (const value of values)
    for (const is of Object.keys(holds) as (keyof typeof holds)[]) {
      const second = { index: 5, is: "masked", mask: 3n << 32n, value: 1n << 32n } as const;
      const rules = [
        { names: ["ioctl"], answer: eperm, args: [{ index: 1, is, value }, second] },
        { names: ["ioctl"], answer: answer.trap, args: [{ index: 0, is: "==", value: 9n }] },
      ] as const;
      const filter = filterOf({ otherwise, rules, unknown: enosys }, "x86_64");
      for (const given of values)
        for (const last of [1n << 32n, 5n << 32n, 2n << 32n, 0n])
          for (const first of [9n, 8n]) {
            const isFirst = holds[is](given, value) && (last >> 32n) % 4n === 1n;
            const wanted = isFirst ? eperm : first === 9n ? answer.trap : otherwise;
            const data = call("x86_64", numberOf("ioctl"), [first, given, 0n, 0n, 0n, last]);
            t.is(run(filter, data), wanted, `${given} ${is} ${value}, ${last}, ${first}`);
          }
    }
});

test("every call gets the answer of its rule, on both architectures", (t) => {
  for (const arch of ["x86_64", "arm64"] as const) {
    const names = [...systemCalls[arch].keys()];
    const denied = new Set(names.filter((_, i) => i % 3 === 0 || i % 7 === 0));
    const profile = {
      otherwise: answer.log,
      unknown: enosys,
      rules: [{ names: [...denied, "no_such_call"], answer: eperm }],
    };
    const filter = filterOf(profile, arch);
    for (const name of names)
      t.is(
        run(filter, call(arch, numberOf(name, arch))),
        denied.has(name) ? eperm : answer.log,
        name,
      );
    t.is(run(filter, call(arch, 1000)), enosys, "of a newer kernel");
    t.is(run(filter, call(arch, 0, [], 0x40000003)), enosys, "a program of 32 bits");
    t.is(run(filter, call(arch, 0x40000000)), enosys, "x32");
  }
});

test("podnet's own profile keeps what a container has no capability for away", (t) => {
  const none = runtimeDefault(new Set());
  for (const name of ["mount", "unshare", "setns", "bpf", "keyctl", "init_module", "reboot"])
    t.is(answerTo(none, name), eperm, name);
  for (const name of ["read", "execve", "setuid", "ptrace", "chroot", "mknod", "fanotify_mark"])
    t.is(answerTo(none, name), answer.allow, name);
  const newUser = 0x10000000n;
  t.is(answerTo(none, "clone", [newUser | 17n]), eperm);
  t.is(answerTo(none, "clone", [0x3d0f00n]), answer.allow, "a thread");
  t.is(answerTo(none, "clone3"), enosys, "libc takes clone instead");
  t.is(answerTo(none, "socket", [40n]), eperm, "vsock");
  t.is(answerTo(none, "socket", [2n]), answer.allow);
  t.is(answerTo(none, "personality", [0xffffffffn]), answer.allow);
  t.is(answerTo(none, "personality", [0x400000n]), eperm);
  const admin = runtimeDefault(new Set(["SYS_ADMIN"]));
  for (const name of ["mount", "unshare", "clone3", "bpf", "perf_event_open"])
    t.is(answerTo(admin, name, [newUser]), answer.allow, name);
  for (const name of ["reboot", "keyctl"]) t.is(answerTo(admin, name), eperm, name);
});

test("what the agent does between its filter and the program is allowed by podnet's profile", (t) => {
  const none = runtimeDefault(new Set());
  const later =
    "setgroups setgid setuid chdir prctl rt_sigprocmask faccessat execve write exit_group";
  for (const name of later.split(" ")) t.is(answerTo(none, name), answer.allow, name);
});

test("a profile of a node is as its author means it", (t) => {
  const profile = parseProfile(
    JSON.stringify({
      defaultAction: "SCMP_ACT_ERRNO",
      defaultErrnoRet: 95,
      architectures: ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
      syscalls: [
        { names: ["read", "write"], action: "SCMP_ACT_ALLOW" },
        { names: ["mkdir"], action: "SCMP_ACT_KILL_PROCESS" },
        { names: ["rmdir"], action: "SCMP_ACT_KILL" },
        { names: ["chmod"], action: "SCMP_ACT_TRAP" },
        { names: ["link"], action: "SCMP_ACT_ERRNO" },
        {
          names: ["socket"],
          action: "SCMP_ACT_ALLOW",
          args: [
            { index: 0, value: 1, op: "SCMP_CMP_EQ" },
            { index: 1, value: 3, valueTwo: 1, op: "SCMP_CMP_MASKED_EQ" },
          ],
        },
        {
          names: ["personality"],
          action: "SCMP_ACT_ALLOW",
          // Of one argument, either.
          args: [
            { index: 0, value: 0, op: "SCMP_CMP_EQ" },
            { index: 0, value: 8, op: "SCMP_CMP_EQ" },
          ],
        },
      ],
    }),
  );
  for (const [name, args, wanted] of [
    ["read", [], answer.allow],
    ["open", [], answer.fail(95)],
    ["mkdir", [], answer.killProcess],
    ["rmdir", [], answer.killThread],
    ["chmod", [], answer.trap],
    ["link", [], eperm],
    ["socket", [1n, 5n], answer.allow],
    ["socket", [1n, 6n], answer.fail(95)],
    ["personality", [8n], answer.allow],
    ["personality", [9n], answer.fail(95)],
  ] as const)
    t.is(answerTo(profile, name, args), wanted, `${name} ${args.join()}`);
  t.is(run(filterOf(profile, "x86_64"), call("x86_64", 1000)), enosys);
});

for (const [what, profile, code] of [
  ["no JSON", "{", "INVALID_ARGUMENT"],
  ["a list", "[]", "INVALID_ARGUMENT"],
  ["no default", "{}", "INVALID_ARGUMENT"],
  ["an action that is none", '{"defaultAction":"SCMP_ACT_MAYBE"}', "INVALID_ARGUMENT"],
  ["a program that answers", '{"defaultAction":"SCMP_ACT_NOTIFY"}', "UNSUPPORTED"],
  ["a listener", '{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/x"}', "UNSUPPORTED"],
  [
    "an errno that is none",
    '{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":-1}',
    "INVALID_ARGUMENT",
  ],
  [
    "calls that are no list",
    '{"defaultAction":"SCMP_ACT_ALLOW","syscalls":{}}',
    "INVALID_ARGUMENT",
  ],
  [
    "a name that is none",
    '{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":[7],"action":"SCMP_ACT_ALLOW"}]}',
    "INVALID_ARGUMENT",
  ],
  [
    "conditions of Docker's",
    '{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["x"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_BPF"]}}]}',
    "UNSUPPORTED",
  ],
  [
    "an argument that is none",
    '{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["x"],"action":"SCMP_ACT_ALLOW","args":[{"index":6,"value":1,"op":"SCMP_CMP_EQ"}]}]}',
    "INVALID_ARGUMENT",
  ],
  [
    "a comparison that is none",
    '{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["x"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"op":"EQ"}]}]}',
    "INVALID_ARGUMENT",
  ],
  [
    "a value that is none",
    '{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["x"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1.5,"op":"SCMP_CMP_EQ"}]}]}',
    "INVALID_ARGUMENT",
  ],
] as const)
  test(`a profile with ${what} is refused`, (t) => {
    t.throws(() => parseProfile(profile), { code });
  });
