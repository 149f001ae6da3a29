import type { Fault } from "../fault.ts";

const session = "guest-init/channel/exec-session.ts";
const exec = "test/unit/guest-init/channel/exec.test.ts";
const answers = "daemon/dhcp/answers.ts";
const dhcp = "test/unit/daemon/dhcp/dhcp.test.ts";

/** What goes into guests and comes out of them: programs, addresses, disks. */
export const guestsFaults: readonly Fault[] = [
  {
    kind: "repair",
    name: "a port whose socket has failed is never answered again",
    file: "daemon/dhcp/port-answers.ts",
    find: "if (!signal.aborted) await this.#rest(error, signal);",
    put: "this[Symbol.dispose]();\n        this.#options.failed(error);",
    noticedBy: {
      file: "test/kernel/dhcp.test.ts",
      title:
        "a port whose socket fails is answered again by a new socket, which is reported once and counted",
    },
  },
  {
    kind: "record",
    name: "every program ends well",
    file: session,
    find: 'this.events.push({ kind: "exit", code });',
    put: 'this.events.push({ kind: "exit", code: code * 0 });',
    noticedBy: {
      file: exec,
      title: "output comes in order and the exit last, whichever channel was first",
    },
  },
  {
    kind: "record",
    name: "a window lies on its side",
    file: session,
    find: "return this.#options.resize(rows, columns);",
    put: "return this.#options.resize(columns, rows);",
    noticedBy: { file: exec, title: "signals and sizes name the process" },
  },
  {
    kind: "release",
    name: "the stream of a program that has ended is kept",
    file: session,
    find: "this.#options.tty.forget(this.stdio);",
    put: "",
    noticedBy: { file: exec, title: "frames for unknown streams are counted and dropped" },
  },
  {
    kind: "mark",
    name: "another card on a guest's port is answered",
    file: answers,
    find: 'if (ask.from !== lease.mac) return { ignored: "dhcp_other_mac" };',
    put: "",
    noticedBy: { file: dhcp, title: "only the card itself is answered" },
  },
  {
    kind: "mark",
    name: "what a guest asks for others is answered",
    file: answers,
    find: "if (said.chaddr !== lease.mac || said.giaddr !== nowhere)",
    put: "if (said.giaddr !== nowhere)",
    noticedBy: { file: dhcp, title: "only the card itself is answered" },
  },
  {
    kind: "mark",
    name: "a guest is granted whatever address it wants",
    file: answers,
    find: 'if (wanted !== own) return reply(dhcp4Types.nak, "refused");',
    put: "",
    noticedBy: { file: dhcp, title: "an address that is its own is granted, any other refused" },
  },
  {
    kind: "mark",
    name: "a guest's questions are listened for at the bridge, where everybody asks",
    file: "daemon/pods/interfaces/answer-guest.ts",
    find: "link: each.nic.tap,",
    put: "link: bridge,",
    noticedBy: {
      file: "test/vm/agentless.test.ts",
      title:
        "a stock guest gets its network by asking, keeps it over a restart of podnetd, and takes more",
    },
    slow: true,
  },
  {
    kind: "undo",
    name: "what a pod has written stays behind",
    file: "hypervisor/disks/copy-on-write.ts",
    find: "() => unlink(path)",
    put: "async () => void unlink",
    noticedBy: {
      file: "test/unit/hypervisor/disk-images.test.ts",
      title: "a pod's own file is begun empty, goes over its image alone, and goes",
    },
  },
  {
    kind: "lock",
    name: "an image is written to that another pod reads",
    file: "daemon/pods/plan/plan-disks.ts",
    find: 'holders.find((each) => each.use === "writes" || use === "writes")',
    put: 'holders.find((each) => each.use === "writes")',
    noticedBy: {
      file: "test/unit/daemon/pods/plan-disks.test.ts",
      title: "an image that is written to is one pod's alone",
    },
  },
  {
    kind: "access",
    name: "a channel that podnetd may not open is found out when all else is made",
    file: "daemon/pods/machine/attach.ts",
    find: 'requireSocket(attached.channel, "channel_socket");',
    put: "void attached.channel;",
    noticedBy: {
      file: "test/vm/standin-attach.test.ts",
      title:
        "a socket that podnetd's own user may not open is reported before anything is made, with who and which",
    },
    slow: true,
  },
  {
    kind: "record",
    name: "a hyperstart's pod that is on record is not believed to be started",
    file: "guest-init/channel/session.ts",
    find: 'return this.#options.configuredBefore === true ? "started" : "unknown";',
    put: 'return "unknown";',
    noticedBy: {
      file: "test/unit/guest-init/channel/hyperstart.test.ts",
      title: "of a guest on record that shows nothing of its pod any more STARTPOD is not asked",
    },
  },
  {
    kind: "repair",
    name: "a hyperstart that has lost lo does not get it back",
    file: "guest-init/channel/hyperstart.ts",
    find: 'await this.#view.textIfAny(["ip", "link", "set", "dev", "lo", "up"], signal);',
    put: "",
    noticedBy: {
      file: "test/unit/guest-init/channel/hyperstart.test.ts",
      title: "a guest that has lost lo gets it back and no second STARTPOD, by the record",
    },
  },
  {
    kind: "mark",
    name: "the files of a hyperstart's pod say nothing",
    file: "guest-init/channel/hyperstart.ts",
    find: "|| (await this.#view.hasPodFiles(signal))",
    put: "",
    noticedBy: {
      file: "test/unit/guest-init/channel/hyperstart.test.ts",
      title: "a guest that has lost lo gets it back and no second STARTPOD, by its files",
    },
  },
  {
    kind: "repair",
    name: "busybox is not asked for what an image has not linked",
    file: "guest-init/channel/guest-programs.ts",
    find: "if (result.code !== notFound) return result;",
    put: "return result;",
    noticedBy: {
      file: "test/unit/guest-init/channel/hyperstart.test.ts",
      title:
        "hyperstart's own image, which links few applets of its busybox: all is asked of busybox",
    },
  },
  {
    kind: "repair",
    name: "a name that the kernel refused is not noticed before routes are sent",
    file: "guest-init/channel/hyperstart.ts",
    find: "if (had !== undefined) await this.#requireNames(config, had, signal);",
    put: "",
    noticedBy: {
      file: "test/unit/guest-init/channel/hyperstart.test.ts",
      title:
        "a name that the kernel refuses is noticed before routes are sent, and the routes come back",
    },
  },
  {
    kind: "repair",
    name: "the clock of a hyperstart that was paused stays behind",
    file: "guest-init/channel/hyperstart.ts",
    find: 'const text = await this.#view.textIfAny(["date", "-s", `@${clockMs / 1000}`], signal);',
    put: 'const text = "";',
    noticedBy: {
      file: "test/unit/guest-init/channel/hyperstart.test.ts",
      title: "the clock of a guest that was paused is set",
    },
  },
  {
    kind: "record",
    name: "a pod without an agent is said to have no logs",
    file: "daemon/pods/guest/agentless.ts",
    find: '"exec and cp: no agent in the guest runs programs",',
    put: '"exec, cp and logs: no agent in the guest runs programs",',
    noticedBy: {
      file: "test/vm/standin-cannot.test.ts",
      title: "get lists exec and logs under Cannot exactly when they are refused",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "logs of an attached machine are answered as if its guest had printed nothing",
    file: "daemon/api/console-stream.ts",
    find: "if (!machineKindOf(plan.vm).hasConsole) throw noConsole();",
    put: "if (!machineKindOf(plan.vm).hasConsole && vm === undefined) throw noConsole();",
    noticedBy: {
      file: "test/vm/standin-cannot.test.ts",
      title: "get lists exec and logs under Cannot exactly when they are refused",
    },
    slow: true,
  },
];
