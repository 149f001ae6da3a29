import type { Fault } from "../fault.ts";

const bounds = "test/unit/daemon/pods/disk-bounds.test.ts";
const full = "test/vm/daemon-full-disk.test.ts";

/** Filesystems that are full, and guests that fill them. */
export const roomFaults: readonly Fault[] = [
  {
    kind: "undo",
    name: "the reserve is not released for what is essential",
    file: "daemon/store/database.ts",
    find: 'if (need !== "essential" || !this.#makesRoom(thrown)) throw thrown;',
    put: "throw thrown;",
    noticedBy: {
      file: bounds,
      title:
        "what is essential is committed with the reserve's room, once, and nothing new before it is whole again",
    },
  },
  {
    kind: "bound",
    name: "something new uses up the reserve's room",
    file: "daemon/store/database.ts",
    find: 'if (need === "new" && !this.#looksForRoom()) throw this.noRoom();',
    put: "",
    noticedBy: {
      file: bounds,
      title:
        "what is essential is committed with the reserve's room, once, and nothing new before it is whole again",
    },
  },
  {
    kind: "record",
    name: "an event of a repeated commit is reported twice",
    file: "daemon/events/journal.ts",
    find: "emitted.length = 0;",
    put: "",
    noticedBy: {
      file: bounds,
      title:
        "what is essential is committed with the reserve's room, once, and nothing new before it is whole again",
    },
  },
  {
    kind: "lock",
    name: "two daemons share a disks directory",
    file: "daemon/store/lock.ts",
    find: "BEGIN EXCLUSIVE",
    put: "BEGIN",
    noticedBy: { file: bounds, title: "a disks directory has one daemon" },
  },
  {
    kind: "bound",
    name: "QEMU is not limited in how much a pod may write",
    file: "hypervisor/disks/disk-argv.ts",
    find: 'file: maxBytes === undefined ? file : { driver: "raw", size: maxBytes, file },',
    put: "file,",
    noticedBy: {
      file: "test/unit/hypervisor/qemu/argv.test.ts",
      title: "what is written to a disk goes over its image, which is opened to be read",
    },
  },
  {
    kind: "bound",
    name: "a disk that does not say may be written to without the node's bound",
    file: "daemon/pods/plan/plan-disks.ts",
    find: "const mib = maxMib ?? diskMaxMib;",
    put: "const mib = maxMib ?? 0 * diskMaxMib;",
    noticedBy: {
      file: bounds,
      title:
        "what a pod may write to a disk is what its spec says, else what the node says, and never more than the disk takes",
    },
  },
  {
    kind: "lock",
    name: "the lock of a full state directory wants to write",
    file: "daemon/store/lock.ts",
    find: "PRAGMA journal_mode = MEMORY; ",
    put: "",
    noticedBy: {
      file: full,
      title:
        "with neither inodes nor a reserve podnetd starts: a forced delete ends the machine, and the rest waits for room",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "a forced delete stops where it cannot be written down",
    file: "daemon/pods/lifecycle/end-pod.ts",
    find: "if (!unwritable || graceful) {",
    put: "if (true as boolean) {",
    noticedBy: {
      file: full,
      title:
        "with neither inodes nor a reserve podnetd starts: a forced delete ends the machine, and the rest waits for room",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "a pod whose disk is full does not say so",
    file: "daemon/pods/lifecycle/lifecycle.ts",
    find: 'status === "io-error" ? diskTrouble(plan) :',
    put: "",
    noticedBy: {
      file: "test/vm/disks-full.test.ts",
      title:
        "a guest that fills its disk is paused with the reason, and goes on when there is room and it is resumed",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a machine that is not confined is ended after podnetd",
    file: "hypervisor/process/process.ts",
    find: "if (!jailed) raiseOomScore(pid);",
    put: "",
    noticedBy: {
      file: "test/vm/standin-start.test.ts",
      title:
        "on a host without memory a machine is ended before podnetd; a foreign machine is as it was",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a confined machine is ended after podnetd",
    file: "hypervisor/jail/podnet-jail.c",
    find: "    raise_oom_score(jail.oom_score);\n",
    put: "    (void)raise_oom_score;\n",
    build: "jail",
    noticedBy: {
      file: "test/vm/jail-pods.test.ts",
      title: "each QEMU is a user of its own, without privilege, in namespaces of its own",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "a program that could not be started for want of descriptors is called missing",
    file: "hypervisor/process/process.ts",
    find: '["EMFILE", "ENFILE", "EAGAIN", "ENOMEM"]',
    put: '["ENFILE", "EAGAIN", "ENOMEM"]',
    noticedBy: {
      file: "test/vm/standin-start.test.ts",
      title: "without descriptors a create says which limit to raise, whatever it meets",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "a QEMU that is stopped is taken for a caller that gave up",
    file: "hypervisor/qmp/client.ts",
    find: "return late ? this.#timedOut(command) : cancelled(command, signal);",
    put: "return late ? cancelled(command, signal) : cancelled(command, signal);",
    noticedBy: {
      file: "test/unit/hypervisor/qmp/client.test.ts",
      title:
        "a QEMU whose process is stopped: the hint names it and what lets it go on, whoever's limit passes",
    },
  },
  {
    kind: "repair",
    name: "what iptables-legacy holds is for root alone to see",
    file: "network/firewall/iptables/firewall.ts",
    find: 'programs.save("legacy", signal, table)',
    put: 'programs.save("legacy", signal)',
    noticedBy: {
      file: "test/vm/daemon-unprivileged.test.ts",
      title:
        "CAP_NET_ADMIN and CAP_NET_RAW see what iptables-legacy holds: it is written where it is in use, once its lock is shared",
    },
    slow: true,
  },
];
