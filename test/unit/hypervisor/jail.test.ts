import test from "ava";
import { parsePodId } from "../../../core/names.ts";
import type { VmPlan } from "../../../hypervisor/driver.ts";
import { fileServerArgv, jailArgv } from "../../../hypervisor/jail/argv.ts";
import { missingCapabilities } from "../../../hypervisor/jail/capabilities.ts";
import {
  chooseCgroups,
  jailOf,
  parseCgroupMounts,
  planCgroups,
} from "../../../hypervisor/jail/cgroup-layout.ts";
import { parseReport } from "../../../hypervisor/jail/report.ts";
import { freeUid, helperUids, isMapped, parseUidRange } from "../../../hypervisor/jail/uids.ts";

const podId = parsePodId("abcdefghijkl");
const limits = { memoryMib: 384, pids: 97 };

// Debian 12 as it is installed: version 2 alone.
const unified = `22 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`;
// Version 1 with a version 2 mount that has other controllers, as on the machine the tests were
// made on.
const both = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
312 309 0:32 /part /run/my\\040groups/memory rw,relatime shared:2 master:3 - cgroup cgroup rw,memory
`;

/** A host with these files; `cgroup.controllers` by mount point. */
const files = (there: readonly string[], controllers: Readonly<Record<string, string>> = {}) => ({
  has: (path: string) => there.includes(path),
  controllers: (path: string) => controllers[path]?.split(" "),
});

test("hierarchies of control groups, as mountinfo reports them", (t) => {
  t.deepEqual(parseCgroupMounts(unified), { unified: ["/sys/fs/cgroup"], memory: [], pids: [] });
  t.deepEqual(parseCgroupMounts(both), {
    unified: ["/sys/fs/cgroup/unified"],
    memory: ["/sys/fs/cgroup/memory", "/run/my groups/memory"],
    pids: ["/sys/fs/cgroup/pids"],
  });
  for (const text of ["", "\n\n", "a b c", "1 2 3 4 5 - cgroup", " - cgroup2"])
    t.notThrows(() => parseCgroupMounts(text));
});

test("version 2 when it has both controllers, else version 1 where it can be seen, else what is missing", (t) => {
  const onBoth = parseCgroupMounts(both);
  const [memory, pids] = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"];
  t.deepEqual(
    chooseCgroups(
      parseCgroupMounts(unified),
      files([], { "/sys/fs/cgroup": "cpuset cpu io memory pids" }),
      "podnet",
    ),
    { version: 2, directory: "/sys/fs/cgroup/podnet" },
  );
  t.deepEqual(
    chooseCgroups(
      onBoth,
      files(
        [`${memory}/cgroup.procs`, `${pids}/cgroup.procs`, `${memory}/memory.memsw.limit_in_bytes`],
        {
          "/sys/fs/cgroup/unified": "hugetlb",
        },
      ),
      "podnet",
    ),
    { version: 1, memory: `${memory}/podnet`, pids: `${pids}/podnet`, swap: true },
  );
  // What another mount hides is passed over.
  t.deepEqual(
    chooseCgroups(
      onBoth,
      files(["/run/my groups/memory/cgroup.procs", `${pids}/cgroup.procs`]),
      "a/b",
    ),
    { version: 1, memory: "/run/my groups/memory/a/b", pids: `${pids}/a/b`, swap: false },
  );
  t.deepEqual(chooseCgroups(onBoth, files([`${memory}/cgroup.procs`]), "podnet"), {
    missing: ["pids"],
  });
  t.deepEqual(chooseCgroups(parseCgroupMounts(""), files([]), "podnet"), {
    missing: ["memory", "pids"],
  });
  t.deepEqual(
    chooseCgroups(
      parseCgroupMounts(unified),
      files([], { "/sys/fs/cgroup": "cpu pids" }),
      "podnet",
    ),
    { missing: ["memory", "pids"] },
  );
});

test("what is written into a machine's groups", (t) => {
  t.deepEqual(planCgroups({ version: 2, directory: "/sys/fs/cgroup/podnet" }, podId, limits), [
    {
      path: "/sys/fs/cgroup/podnet/abcdefghijkl",
      files: [
        ["memory.max", "402653184"],
        ["memory.swap.max", "0"],
        ["memory.oom.group", "1"],
        ["pids.max", "97"],
      ],
    },
  ]);
  const one = planCgroups(
    { version: 1, memory: "/m/podnet", pids: "/p/podnet", swap: true },
    podId,
    limits,
  );
  t.deepEqual(one, [
    {
      path: "/m/podnet/abcdefghijkl",
      files: [
        ["memory.limit_in_bytes", "402653184"],
        ["memory.memsw.limit_in_bytes", "402653184"],
      ],
    },
    { path: "/p/podnet/abcdefghijkl", files: [["pids.max", "97"]] },
  ]);
  const [without] = planCgroups(
    { version: 1, memory: "/m", pids: "/p", swap: false },
    podId,
    limits,
  );
  t.deepEqual(without?.files, [["memory.limit_in_bytes", "402653184"]]);
  const template = jailOf({ uid: 7, cgroups: one }, parsePodId("mnopqrstuvwx"));
  t.deepEqual(
    template.cgroups.map(({ path }) => path),
    ["/m/podnet/mnopqrstuvwx", "/p/podnet/mnopqrstuvwx"],
  );
});

const plan: VmPlan = {
  podId,
  vcpu: 1,
  memoryMib: 128,
  kernel: "/image/vmlinux",
  initrd: "/image/initramfs.gz",
  cmdline: "",
  disks: [],
  runDir: "/run/podnet/pods/abcdefghijkl",
  jail: {
    uid: 2_000_000_000,
    cgroups: [{ path: "/sys/fs/cgroup/podnet/abcdefghijkl", files: [] }],
  },
};
const host = { launcher: "/usr/lib/podnet/podnet-jail", reportFd: 3, accelerator: "tcg" } as const;

test("the launcher's words", (t) => {
  t.is(
    jailArgv(plan, host).join(" ").replaceAll(" --", "\n--"),
    `/usr/lib/podnet/podnet-jail
--uid 2000000000
--run /run/podnet/pods/abcdefghijkl
--report 3
--oom-score 500
--cgroup /sys/fs/cgroup/podnet/abcdefghijkl
--read /image/vmlinux
--read /image/initramfs.gz
--`,
  );
  const { jail, ...open } = plan;
  t.truthy(jail);
  t.deepEqual(jailArgv(open, host), []);
});

test("what serves files has the machine's user, or the owner of what the machine writes to", (t) => {
  const jail = { uid: 2_000_000_000, cgroups: [] };
  const given = { launcher: "/l", jail, fd: 3, socket: "s.sock", reportFd: 4, openFiles: 9 };
  const words = (owner: { uid: number; gid: number } | undefined): string =>
    fileServerArgv({ ...given, owner }).join(" ");
  t.regex(words(undefined), /^\/l --uid 2000000000 --report 4 --served 3 --listen s\.sock /);
  t.regex(words({ uid: 7, gid: 8 }), /^\/l --uid 7 --writable 8 --report 4 --served 3 /);
});

test("/dev/kvm and the group that may open it are for hardware virtualisation alone", (t) => {
  const words = jailArgv(plan, { ...host, accelerator: "kvm", kvmGroup: 106 }).join(" ");
  t.regex(words, / --group 106 /);
  t.regex(words, / --device \/dev\/kvm --$/);
  t.notRegex(jailArgv(plan, { ...host, kvmGroup: 106 }).join(" "), /kvm|--group/);
});

test("the launcher's report", (t) => {
  t.deepEqual(parseReport("pid 42\nready\n"), { pid: 42, ready: true, error: undefined });
  // It is ready before it is executed, and its parent may speak later.
  t.deepEqual(parseReport("ready\npid 42\nerror execute /q: No such file or directory\n"), {
    pid: 42,
    ready: false,
    error: "execute /q: No such file or directory",
  });
  t.deepEqual(parseReport(""), { pid: undefined, ready: false, error: undefined });
  t.false(parseReport("already\n").ready);
});

test("users: ranges, the lowest free one, those a namespace has", (t) => {
  const range = parseUidRange("2000000000-2000065535");
  t.deepEqual(range, { first: 2_000_000_000, last: 2_000_065_535 });
  for (const text of [
    "",
    "5",
    "0-5000",
    "999-2000",
    "3000-2000",
    "1000-4294967295",
    "a-b",
    "1000-2000-3000",
    "-1-5",
    "1000-1001",
  ])
    t.throws(() => parseUidRange(text), { instanceOf: TypeError }, text);
  t.deepEqual(parseUidRange("1000-1002"), { first: 1000, last: 1002 });
  const all = { first: 1000, last: 1004 };
  t.is(freeUid(all, new Set()), 1000);
  t.is(freeUid(all, new Set([1000, 1002])), 1001);
  // The last two are no machine's.
  t.is(freeUid(all, new Set([1000, 1001, 1002])), undefined);
  t.deepEqual(helperUids(all), { relay: 1004, images: 1003 });
  const few = { first: 1000, last: 1002 };
  t.true(isMapped(range, "         0          0 4294967295\n"));
  t.false(isMapped(range, "         0     100000      65536\n"));
  t.true(isMapped(few, "0 100000 1000\n1000 5000 3\n"));
  t.false(isMapped(few, "0 100000 1000\n1000 5000 2\n"));
  t.false(isMapped(few, ""));
});

const status = (uid: number, effective: string, bounding: string, ambient: string): string =>
  `Name:\tnode\nUid:\t${uid}\t${uid}\t${uid}\t${uid}\nCapEff:\t${effective}\nCapBnd:\t${bounding}\nCapAmb:\t${ambient}\n`;
const [all, none] = ["000001ffffffffff", "0000000000000000"];

test("capabilities that programs started by podnetd would lack", (t) => {
  t.deepEqual(missingCapabilities(status(0, all, all, none)), []);
  t.deepEqual(missingCapabilities(status(990, all, all, all)), []);
  // They have to be ambient: what is only effective is not handed on.
  t.is(missingCapabilities(status(990, all, all, none)).length, 6);
  // 0x2001e1: chown, kill, setgid, setuid, setpcap, sys_admin.
  t.deepEqual(missingCapabilities(status(990, "00000000002001e1", all, "00000000002001e1")), []);
  t.deepEqual(missingCapabilities(status(990, "00000000002001c1", all, "00000000002001c1")), [
    "CAP_KILL",
  ]);
  t.deepEqual(missingCapabilities(status(0, "000001ffffdfffff", all, none)), ["CAP_SYS_ADMIN"]);
  t.is(missingCapabilities("").length, 6);
});
