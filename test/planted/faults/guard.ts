import type { Fault } from "../fault.ts";

const unit = "test/unit/core/guard.test.ts";

/** What keeps a mistake of podnetd's own, met by something from outside, from being its end. */
export const guardFaults: readonly Fault[] = [
  {
    kind: "repair",
    name: "a defect is logged in words that no rig looks for",
    file: "daemon/main/defects.ts",
    find: '"Defect in podnet, please report it: the event that met it was dropped, and podnetd continues",',
    put: '"Something went wrong",',
    noticedBy: {
      file: unit,
      title: "a test's end fails when podnetd has logged a defect, as it logs one",
    },
  },
  {
    kind: "bound",
    name: "a timer's callback runs in no guard",
    file: "daemon/drift/drift.ts",
    find: 'guarded("netlink", () => this.#suspect({ rules: true })),',
    put: "() => this.#suspect({ rules: true }),",
    noticedBy: {
      file: "test/static/guarded.test.ts",
      title: "what handles something from outside stands in a guard",
    },
  },
  {
    kind: "bound",
    name: "a promise is left without a handler while rules are looked at",
    file: "daemon/verify/verify-pod.ts",
    find: "[] : portsAsPrinted(),",
    put: "[] : await portsAsPrinted(),",
    noticedBy: {
      file: "test/unit/daemon/verify/cancelled.test.ts",
      title:
        "a verify that is cancelled while rules are looked at rejects, and leaves no rejection behind",
    },
  },
  {
    kind: "bound",
    name: "a guard lets rejections pass",
    file: "core/guard.ts",
    find: "if (result instanceof Promise)",
    put: "if (result instanceof Promise && place.length > 99)",
    noticedBy: {
      file: unit,
      title: "what a guarded handler's promise rejects with is reported, and rejects no more",
    },
  },
  {
    kind: "release",
    name: "what brought a defect is not dropped",
    file: "core/guard.ts",
    find: "    drop?.();",
    put: "",
    noticedBy: {
      file: unit,
      title: "what a guarded handler throws is reported, and what brought it dropped",
    },
  },
  {
    kind: "bound",
    name: "each defect is a line in the log",
    file: "daemon/main/defects.ts",
    find: "now - reported.atMs < intervalMs",
    put: "now < reported.atMs",
    noticedBy: {
      file: unit,
      title: "a flood of defects is counted whole, and logged once in ten seconds for each place",
    },
  },
  {
    kind: "bound",
    name: "an error of a connection's handler ends podnetd",
    file: "daemon/published/tcp-port.ts",
    find: 'guarded("ports", take, resetConnection)',
    put: "take",
    noticedBy: {
      file: "test/vm/standin-ports.test.ts",
      title: "an error that a connection's handler does not expect drops that connection alone",
    },
    slow: true,
  },
  {
    kind: "bound",
    name: "a handler of datagrams stands in no guard",
    file: "daemon/published/udp-port.ts",
    find: 'socket.on("message", guarded("ports", take));',
    put: 'socket.on("message", take);',
    noticedBy: {
      file: "test/static/guarded.test.ts",
      title: "what handles something from outside stands in a guard",
    },
  },
  {
    kind: "release",
    name: "a connection that is reset while it ends stays open",
    file: "linux/sockets/reset-connection.ts",
    find: "  socket.destroy();",
    put: "  socket.resetAndDestroy();",
    noticedBy: {
      file: "test/kernel/odd-packets.test.ts",
      title: "odd frames at the listeners: none is an error, and each still answers",
    },
    slow: true,
  },
];
