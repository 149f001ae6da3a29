import type { Fault } from "../fault.ts";

const session = "guest-init/channel/exec-session.ts";
const exec = "test/unit/channel-exec.test.ts";
const answers = "daemon/dhcp/answers.ts";
const dhcp = "test/unit/dhcp.test.ts";

/** What goes into guests and comes out of them: programs, addresses, disks. */
export const guestsFaults: readonly Fault[] = [
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
    noticedBy: { file: exec, title: "frames for streams nobody has are counted and dropped" },
  },
  {
    kind: "mark",
    name: "another card on a guest's port is answered",
    file: answers,
    find: 'if (ask.from !== lease.mac) return { ignored: "dhcp_other_mac" };',
    put: "",
    noticedBy: { file: dhcp, title: "nobody but the card itself is answered" },
  },
  {
    kind: "mark",
    name: "what a guest asks for others is answered",
    file: answers,
    find: "if (said.chaddr !== lease.mac || said.giaddr !== nowhere)",
    put: "if (said.giaddr !== nowhere)",
    noticedBy: { file: dhcp, title: "nobody but the card itself is answered" },
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
    file: "daemon/pod/answer-guest.ts",
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
    file: "hypervisor/qemu/overlays.ts",
    find: "() => unlink(path)",
    put: "async () => void unlink",
    noticedBy: {
      file: "test/unit/disk-images.test.ts",
      title: "a pod's own file is begun empty, goes over its image alone, and goes",
    },
  },
  {
    kind: "lock",
    name: "an image is written to that another pod reads",
    file: "daemon/pod/plan-disks.ts",
    find: 'holders.find((each) => each.use === "writes" || use === "writes")',
    put: 'holders.find((each) => each.use === "writes")',
    noticedBy: {
      file: "test/unit/plan-disks.test.ts",
      title: "an image that is written to is one pod's alone",
    },
  },
  {
    kind: "access",
    name: "a channel that podnetd may not open is found out when all else is made",
    file: "daemon/pod/attached.ts",
    find: 'requireSocket(attached.channel, "channel_socket");',
    put: "void attached.channel;",
    noticedBy: {
      file: "test/vm/standin-attach.test.ts",
      title:
        "a socket that podnetd's own user may not open is told before anything is made, with who and which",
    },
    slow: true,
  },
];
