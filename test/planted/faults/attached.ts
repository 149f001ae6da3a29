import type { Fault } from "../fault.ts";

const places = "test/unit/hypervisor/attach/machine.test.ts";
const killed = "test/vm/attach-killed.test.ts";
const ends = "test/vm/attach-ends.test.ts";

/** Foreign machines: what is theirs, and what is taken back. */
export const attachedFaults: readonly Fault[] = [
  {
    kind: "mark",
    name: "a slot of a foreign device counts as free",
    file: "hypervisor/attach/machine.ts",
    find: "return all.filter((slot) => !slots.has(slot))",
    put: "return all.filter((slot) => slot >= slots.size * 0)",
    noticedBy: {
      file: places,
      title:
        "behind a bridge and on pc's own bus every slot that is free is a place, and none that is taken",
    },
  },
  {
    kind: "mark",
    name: "a port with a device in it counts as free",
    file: "hypervisor/attach/machine.ts",
    find: "return taken.length === 0 ? [{ bus: id, slot: 0 }] : [];",
    put: "return taken.length >= 0 ? [{ bus: id, slot: 0 }] : [];",
    noticedBy: { file: places, title: "ports that are empty come first, each for one NIC" },
  },
  {
    kind: "undo",
    name: "what a dead podnetd has plugged into a machine of others stays",
    file: "hypervisor/qemu/attach.ts",
    find: "await vm?.stop({ graceMs: 0 });",
    put: "await vm?.detach();",
    noticedBy: {
      file: killed,
      title: "podnetd killed at qmp:device_add:after#1 leaves nothing of an attach in the machine",
    },
    slow: true,
  },
  {
    kind: "access",
    name: "podnet stops machines of others",
    file: "daemon/pods/pods.ts",
    find: 'refuseOwners(row, "stop");',
    put: "void row;",
    noticedBy: { file: ends, title: "what is the owner's is refused, and says why" },
    slow: true,
  },
  {
    kind: "bound",
    name: "a monitor that is in use is waited for",
    file: "hypervisor/attach/monitor.ts",
    find: "{ signal: limited(openMs, signal), greetingMs }",
    put: "{ signal: limited(10 * openMs, signal), greetingMs: 10 * greetingMs }",
    noticedBy: {
      file: ends,
      title:
        "a QMP socket that is in use, is none, or whose machine cannot have NICs is reported within two seconds",
    },
    slow: true,
  },
];
