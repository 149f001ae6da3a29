import type { Fault } from "../fault.ts";

const qmp = "test/unit/hypervisor/qmp/client.test.ts";
const nics = "test/unit/hypervisor/qemu/nics.test.ts";
const argv = "test/unit/hypervisor/qemu/argv.test.ts";
const standIns = "test/vm/standin-killed.test.ts";

/** QEMU: its monitor, its NICs, what it inherits and leaves. */
export const qemuFaults: readonly Fault[] = [
  {
    kind: "bound",
    name: "a QMP line may have any length",
    file: "hypervisor/qmp/lines.ts",
    find: "if (this.#held + piece.length > this.#limit) {",
    put: "if (this.#limit < 0) {",
    noticedBy: {
      file: "test/unit/hypervisor/qmp/lines.test.ts",
      title: "a line of the limit passes, one byte more does not",
    },
  },
  {
    kind: "bound",
    name: "a command to QEMU has no deadline",
    file: "hypervisor/qmp/client.ts",
    find: "const late = setTimeout(() => pending.reject(this.#timedOut(command, deadlineMs)), deadlineMs);",
    put: "const late = setTimeout(() => void this.#timedOut(command, deadlineMs), 1);",
    noticedBy: {
      file: qmp,
      title: "silence after the greeting: the command's deadline ends the wait",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "mark",
    name: "an answer to a command never sent is passed over",
    file: "hypervisor/qmp/client.ts",
    find: "if (id === undefined || id < 1 || id >= this.#nextId)",
    put: "if (id === undefined)",
    noticedBy: { file: qmp, title: "an id never sent ends the session" },
    slow: true,
  },
  {
    kind: "lock",
    name: "a command may overtake a descriptor on its way to QEMU",
    file: "hypervisor/qmp/client.ts",
    find: "await this.#queue;",
    put: "",
    noticedBy: { file: qmp, title: "getfd holds the queue until it is answered" },
  },
  {
    kind: "release",
    name: "a descriptor that QEMU never answers for blocks its monitor",
    file: "hypervisor/qmp/client.ts",
    find: "void sent.then(leave, leave);",
    put: "void [sent, leave];",
    noticedBy: { file: qmp, title: "a getfd never answered frees the queue at its deadline" },
    slow: true,
    shows: "hang",
  },
  {
    kind: "release",
    name: "a slot stays taken when its NIC has left",
    file: "hypervisor/nics/nics.ts",
    find: "if (held.left) this.#free(held);\n    else held.state",
    put: "held.state",
    noticedBy: {
      file: nics,
      title: "an unplug that fails after the NIC has left frees the slot",
    },
  },
  {
    kind: "bound",
    name: "the last of many NICs has no time to leave",
    file: "hypervisor/nics/nics.ts",
    find: "if (there) await this.#leftInTurn(held, qmp, signal);",
    put: "",
    noticedBy: {
      file: nics,
      title:
        "a guest that lets go of one NIC after the other has time for each; its traffic has not",
    },
  },
  {
    kind: "undo",
    name: "the netdev of a NIC that could not be plugged stays",
    file: "hypervisor/nics/nic-removal.ts",
    find: 'if (undo.netdev) steps.push(qmp.execute("netdev_del", { id: nic.netdevId }));',
    put: "",
    noticedBy: {
      file: nics,
      title: "a plug without an answer: the NIC may come and go while it is undone",
    },
  },
  {
    kind: "undo",
    name: "the descriptor of a NIC that could not be plugged stays in QEMU",
    file: "hypervisor/nics/nic-removal.ts",
    find: 'for (const fdname of names) steps.push(qmp.execute("closefd", { fdname }));',
    put: "",
    noticedBy: {
      file: nics,
      title: "a plug without an answer: the NIC may come and go while it is undone",
    },
  },
  {
    kind: "undo",
    name: "a QEMU that started in vain runs on",
    file: "hypervisor/qemu/driver.ts",
    find: "if (record !== undefined) await endProcess(record, { asked: false });\n    await removeRemains(plan);\n    return failure",
    put: "void record;\n    await removeRemains(plan);\n    return failure",
    noticedBy: {
      file: "test/vm/hypervisor-process.test.ts",
      title: "a QEMU that talks nonsense is ended, and nothing is left",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "a pod's descriptors are inherited by every QEMU",
    file: "linux/processes/close-on-exec.ts",
    find: "if (flags >= 0 && (flags & FD_CLOEXEC) === 0) fcntl(fd, F_SETFD, flags | FD_CLOEXEC);",
    put: "void [flags, FD_CLOEXEC, F_SETFD];",
    noticedBy: {
      file: "test/vm/hypervisor-process.test.ts",
      title: "QEMU inherits none of our descriptors",
    },
    slow: true,
  },
  {
    kind: "release",
    name: "a tap outlives whoever holds it",
    file: "linux/tun.ts",
    find: "if (ownerUid !== undefined)",
    put: "ioctlNumber(fd, 0x400454cb, 1);\n    if (ownerUid !== undefined)",
    noticedBy: {
      file: "test/kernel/linux-tun.test.ts",
      title: "a tap is single-queue, with virtio header, owned and not persistent",
    },
  },
  {
    kind: "lock",
    name: "a tap of a name that is taken is joined",
    file: "linux/tun.ts",
    find: "attach(fd, name, IFF_TAP | IFF_TUN_EXCL | more, what);",
    put: "attach(fd, name, IFF_TAP | (0 * IFF_TUN_EXCL) | more, what);",
    noticedBy: {
      file: "test/kernel/linux-tun.test.ts",
      title: "a name in use is refused, whoever holds it",
    },
  },
  {
    kind: "release",
    name: "connections to QEMU are inherited",
    file: "linux/sockets/unix-socket.ts",
    find: "SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0",
    put: "SOCK_STREAM | SOCK_NONBLOCK | (SOCK_CLOEXEC & 0), 0",
    noticedBy: {
      file: "test/kernel/linux-unix-socket.test.ts",
      title: "a descriptor leaks to no child process",
    },
  },
  {
    kind: "repair",
    name: "a connection reads before a listener for its errors is added",
    file: "linux/sockets/unix-socket.ts",
    find: "    this.fd = fd;",
    put: "    this.fd = fd;\n    void this.socket;",
    // The error has no listener: no test can catch it.
    shows: "end",
    noticedBy: {
      file: "test/kernel/linux-unix-socket.test.ts",
      title:
        "a peer that dies before a listener is added to the connection ends nothing, and is reported then",
    },
  },
  {
    kind: "bound",
    name: "QEMU's log grows without end",
    file: "hypervisor/process/run-dir.ts",
    find: "if ((await file.stat()).size <= logLimit) return;",
    put: "if ((await file.stat()).size > 0) return;",
    noticedBy: {
      file: "test/unit/hypervisor/qemu/run-dir.test.ts",
      title: "QEMU's log is emptied when it has grown too long, and not before",
    },
  },
  {
    kind: "bound",
    name: "a guest's console is kept without end",
    file: "hypervisor/console/console.ts",
    find: "const ringBytes = 1024 * 1024;",
    put: "const ringBytes = 1024 * 1024 * 1024;",
    noticedBy: {
      file: "test/unit/hypervisor/qemu/console.test.ts",
      title: "a ring takes no more memory than it holds, whatever goes through it",
    },
  },
  {
    kind: "escape",
    name: "a comma in a disk's path begins an option of QEMU's",
    file: "hypervisor/disks/disk-argv.ts",
    find: 'path.replaceAll(",", ",,")',
    put: "path",
    noticedBy: { file: argv, title: "disks, with a path full of QEMU's own syntax" },
  },
  {
    kind: "escape",
    name: "a path of the run directory's is taken for the caller's",
    file: "hypervisor/argv/argv.ts",
    find: 'if (!path.startsWith("/") || path.includes("\\0")) {',
    put: 'if (path.includes("\\0")) {',
    noticedBy: { file: argv, title: 'refused: {"kernel":"vmlinux"}' },
  },
  {
    kind: "mark",
    name: "a process of another boot is taken for the machine",
    file: "hypervisor/process/process.ts",
    find: "return record.bootId === bootId() && isSameProcess(record.pid, record.startTime);",
    put: "return isSameProcess(record.pid, record.startTime);",
    noticedBy: {
      file: standIns,
      title:
        "a creating pod's pid that is a process which began at the same time of another boot: never signalled",
    },
    slow: true,
  },
  {
    kind: "mark",
    name: "whatever has a machine's pid is signalled",
    file: "hypervisor/process/process.ts",
    find: 'export function signalProcess(record: ProcessRecord, signal: "SIGTERM" | "SIGKILL"): void {\n  if (!isRunning(record)) return;',
    put: 'export function signalProcess(record: ProcessRecord, signal: "SIGTERM" | "SIGKILL"): void {',
    noticedBy: {
      file: standIns,
      title: "a deleting pod's pid that is a process which began at another time: never signalled",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "the record of a machine that was not there is kept, and none is looked for",
    file: "hypervisor/qemu/driver.ts",
    find: "const unrecorded = findProcess(plan);",
    put: "const unrecorded = undefined as ReturnType<typeof findProcess>;",
    noticedBy: {
      file: "test/vm/hypervisor-process.test.ts",
      title: "reap finds a VM whose record was never written",
    },
    slow: true,
    shows: "hang",
  },
  {
    kind: "mark",
    name: "KVM is used for guests of another architecture",
    file: "hypervisor/argv/accelerator.ts",
    find: "if (arch !== hostArchitecture)",
    put: "if (arch !== arch)",
    noticedBy: {
      file: "test/unit/hypervisor/qemu/accelerator.test.ts",
      title: "guests of another architecture are emulated, whatever the processor offers",
    },
  },
  {
    kind: "mark",
    name: "a kernel of another architecture is started",
    file: "hypervisor/argv/kernel-file.ts",
    find: "if (kernel.arch !== arch) return",
    put: "if (kernel.arch === undefined) return",
    noticedBy: {
      file: "test/unit/hypervisor/qemu/kernel-file.test.ts",
      title: "a kernel is of its machine's architecture",
    },
  },
];
