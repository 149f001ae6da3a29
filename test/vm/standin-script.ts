/** One line sent to a monitor. */
export interface Line {
  readonly send: string;
  /** A descriptor that goes along: a tap, a file that is none, or a disk of 1 MiB. */
  readonly with?: "tap" | "file" | "disk";
  /** Events that must have come before the next line is sent, by name. */
  readonly until?: readonly string[];
  /** Milliseconds to wait before. */
  readonly after?: number;
}

const command = (execute: string, args?: object, more: Omit<Line, "send"> = {}): Line => ({
  send: JSON.stringify({
    execute,
    ...(args === undefined ? {} : { arguments: args }),
    id: execute,
  }),
  ...more,
});
const raw = (send: string): Line => ({ send });

const nic = (slot: number | string, more: object = {}): object => ({
  driver: "virtio-net-pci",
  id: "nic1",
  bus: "br0",
  addr: typeof slot === "number" ? `0x${slot.toString(16)}` : slot,
  netdev: "netdev1",
  mac: "52:54:00:00:00:01",
  romfile: "",
  guest_announce: false,
  ...more,
});
const tap = { type: "tap", id: "netdev1", fd: "fd1" };
const gone = ["DEVICE_DELETED", "DEVICE_DELETED"];

/** What is sent to a monitor before anything is agreed upon. */
const foreigners: readonly Line[] = [
  command("query-status"),
  raw("{}"),
  command("qmp_capabilities", { enable: ["teleport"] }),
  command("qmp_capabilities", { enable: "oob" }),
  command("qmp_capabilities", { enable: [], more: 1 }),
  command("qmp_capabilities"),
  command("qmp_capabilities"),
];

/** Lines that are no commands, and commands with arguments they do not have. */
const badLines: readonly Line[] = [
  raw("[1, 2]"),
  raw('"words"'),
  raw("7"),
  raw("{}"),
  raw('{"arguments": {}}'),
  raw('{"execute": 7, "id": 1}'),
  raw('{"execute": "query-status", "arguments": [], "id": 2}'),
  raw('{"execute": "query-status", "surplus": 1, "id": 3}'),
  raw('{"execute": "query-status", "exec-oob": "query-status", "id": 4}'),
  raw('{"execute": "query-status", "id": {"any": ["thing", null, 1.5]}}'),
  raw('{"execute": "query-status"}'),
  raw('{"execute": "no-such-command", "id": "x"}'),
  raw('{"exec-oob": "query-status", "id": 5}'),
  raw("{'execute': 'query-status', 'id': 'single quotes'}"),
  raw('{"execute": "query-status", "id": 6} {"execute": "query-version", "id": 7}'),
  raw(""),
  raw('{"execute": nope}'),
  raw("}"),
  command("query-status", { surplus: 1 }),
  command("closefd", {}),
  command("closefd", { fdname: 7 }),
  command("closefd", { fdname: "a", surplus: true }),
  command("netdev_del", {}),
  command("netdev_del", { id: null }),
  command("device_del", {}),
  command("device_del", { id: [] }),
  command("qom-list", {}),
  command("qom-get", { path: "/machine" }),
];

/** A machine that has not begun, what it has, and descriptors handed to it. */
const looks: readonly Line[] = [
  command("query-version"),
  command("query-status"),
  command("query-kvm"),
  command("query-chardev"),
  command("qom-list", { path: "/machine/peripheral" }),
  command("qom-list", { path: "/no/such" }),
  command("qom-get", { path: "/no/such", property: "addr" }),
  command("getfd", { fdname: "fd1" }),
  command("getfd", { fdname: "1fd" }, { with: "file" }),
  command("getfd", {}, { with: "file" }),
  command("getfd", { fdname: "kept" }),
  command("getfd", { fdname: "kept" }, { with: "file" }),
  command("getfd", { fdname: "kept" }, { with: "file" }),
  command("closefd", { fdname: "kept" }),
  command("closefd", { fdname: "kept" }),
  command("getfd", { fdname: "fd1" }, { with: "file" }),
  command("netdev_add", tap),
  command("closefd", { fdname: "fd1" }),
];

const get = (path: string, property: string): Line => command("qom-get", { path, property });
const list = (path: string): Line => command("qom-list", { path });
const bridge = "/machine/peripheral/br0/br0";

/** What is asked of a machine before anything is plugged into it of another program. */
const others: readonly Line[] = [
  get("/machine", "type"),
  get("/machine", "surplus"),
  command("query-migrate"),
  command("query-memory-size-summary"),
  command("query-cpus-fast"),
  command("qom-list-types", { implements: "virtio-net-pci" }),
  command("qom-list-types", { implements: "no-such-device" }),
  command("qom-list-types", { implements: 7 }),
  command("qom-list-types", { implements: "virtio-net-pci", surplus: 1 }),
  list(bridge),
  get(bridge, "hotplug-handler"),
  get(bridge, "surplus"),
  get(`${bridge}/child[9]`, "addr"),
  list("/machine/i440fx/pci.0"),
];

const plugs: readonly Line[] = [
  command("cont", undefined, { until: ["RESUME"] }),
  command("query-status"),
  command("stop", undefined, { until: ["STOP"] }),
  command("stop"),
  command("query-status"),
  command("cont", undefined, { until: ["RESUME"] }),
  command("cont"),
  command("netdev_add", tap),
  command("netdev_add", {}),
  command("netdev_add", { type: "tap" }),
  command("netdev_add", { id: "netdev1" }),
  command("netdev_add", { ...tap, type: "teleport" }),
  command("netdev_add", { ...tap, type: 7 }),
  command("netdev_add", { ...tap, fd: 7 }),
  command("netdev_add", { ...tap, surplus: 1 }),
  command("netdev_add", { ...tap, id: "not an id" }),
  command("getfd", { fdname: "fd1" }, { with: "tap" }),
  command("netdev_add", tap),
  command("closefd", { fdname: "fd1" }),
  command("netdev_add", tap),
  command("getfd", { fdname: "fd2" }, { with: "tap" }),
  command("netdev_add", { ...tap, fd: "fd2" }),
  command("closefd", { fdname: "fd2" }),
  command("device_add", {}),
  command("device_add", { driver: 7 }),
  command("device_add", { driver: "no-such-device" }),
  command("device_add", nic(1, { bus: "br9" })),
  command("device_add", nic(1, { netdev: "netdev9" })),
  command("device_add", nic(1, { mac: "words" })),
  command("device_add", nic(1, { mac: 7 })),
  command("device_add", nic(1, { surplus: "x" })),
  command("device_add", nic(1, { id: "not an id" })),
  command("device_add", nic("0x20")),
  command("device_add", nic("words")),
  command("device_add", nic(0)),
  command("qom-list", { path: "/machine/peripheral" }),
  command("device_add", nic(1)),
  command("device_add", nic(2)),
  command("device_add", nic(1, { id: "nic2" })),
  command("device_add", nic(2, { id: "nic2" })),
  command("getfd", { fdname: "fd2" }, { with: "tap" }),
  command("netdev_add", { ...tap, id: "netdev2", fd: "fd2" }),
  command("device_add", nic(0, { id: "nic2", netdev: "netdev2" })),
  command("device_add", nic(1, { id: "nic2", netdev: "netdev2" })),
  command("device_add", nic(2, { netdev: "netdev2" })),
  command("device_add", nic(2, { id: "nic2", netdev: "netdev2", mac: "52:54:00:00:00:02" })),
  command("qom-list", { path: "/machine/peripheral" }),
  command("qom-get", { path: "/machine/peripheral/nic1", property: "addr" }),
  command("qom-get", { path: "/machine/peripheral/nic1", property: "netdev" }),
  command("qom-get", { path: "/machine/peripheral/nic1", property: "mac" }),
  command("qom-get", { path: "/machine/peripheral/nic1", property: "legacy-addr" }),
  command("qom-get", { path: "/machine/peripheral/nic1", property: "surplus" }),
  command("qom-get", { path: "nic1", property: "addr" }),
  get("/machine/peripheral/nic1", "parent_bus"),
  list(bridge),
  get(`${bridge}/child[0]`, "addr"),
  get(`${bridge}/child[1]`, "addr"),
];

/** With a guest that lets go of what it is asked to let go of. */
const unplugs: readonly Line[] = [
  command("device_del", { id: "nic9" }),
  command("netdev_del", { id: "netdev9" }),
  command("device_del", { id: "nic1" }, { until: gone }),
  command("device_del", { id: "nic1" }),
  command("netdev_del", { id: "netdev1" }),
  command("netdev_del", { id: "netdev1" }),
  // The other way round: the netdev goes first.
  command("netdev_del", { id: "netdev2" }),
  command("device_del", { id: "nic2" }, { until: gone }),
  command("qom-list", { path: "/machine/peripheral" }),
  command("getfd", { fdname: "fd1" }, { with: "tap" }),
  command("netdev_add", tap),
  command("device_add", nic(31)),
  command("qom-get", { path: "/machine/peripheral/nic1", property: "addr" }),
  // Later ones have higher numbers.
  list(bridge),
  command("device_del", { id: "/machine/peripheral/nic1" }, { until: gone }),
  command("netdev_del", { id: "netdev1" }),
  command("device_del", { id: "serial0" }),
];

const ends: readonly Line[] = [
  command("system_reset", undefined, { until: ["RESET"] }),
  command("system_powerdown", undefined, { until: ["POWERDOWN"] }),
  command("query-status"),
  command("quit", undefined, { until: ["SHUTDOWN"] }),
];

/**
 * A machine with a NIC that its owner has started it with, which goes and comes as those of others.
 */
export const ownersScript: readonly Line[] = [
  command("qmp_capabilities"),
  list("/machine/peripheral"),
  list(bridge),
  get(`${bridge}/child[0]`, "addr"),
  get("/machine/peripheral/nic0", "parent_bus"),
  get("/machine/peripheral/nic0", "netdev"),
  command("getfd", { fdname: "fd1" }, { with: "tap" }),
  command("netdev_add", tap),
  command("device_add", nic(5)),
  command("device_add", nic(1, { id: "nic0" })),
  command("device_add", nic(1)),
  list(bridge),
  command("cont", undefined, { until: ["RESUME"] }),
  command("device_del", { id: "nic0" }, { until: gone }),
  list(bridge),
  command("quit", undefined, { until: ["SHUTDOWN"] }),
];

/** With a guest that never lets go, before and after it runs. */
export const deafScript: readonly Line[] = [
  command("qmp_capabilities"),
  command("getfd", { fdname: "fd1" }, { with: "tap" }),
  command("netdev_add", tap),
  command("device_add", nic(1)),
  command("cont", undefined, { until: ["RESUME"] }),
  command("device_del", { id: "nic1" }),
  // (Asked again at once QEMU refuses or not, as far as its hot-plug controller has come: nothing
  // to compare.)
  command("netdev_del", { id: "netdev1" }),
  command("qom-list", { path: "/machine/peripheral" }),
  command("getfd", { fdname: "fd1" }, { with: "tap" }),
  command("netdev_add", tap),
  command("device_add", nic(1)),
  command("device_add", nic(1, { id: "nic2" })),
  command("device_add", nic(2, { id: "nic2" })),
  command("system_reset", undefined, { until: [...gone, "RESET"] }),
  command("qom-list", { path: "/machine/peripheral" }),
  command("device_del", { id: "nic2" }),
  command("netdev_del", { id: "netdev1" }),
  command("system_reset", undefined, { until: [...gone, "RESET"] }),
  command("quit", undefined, { until: ["SHUTDOWN"] }),
];

const disk = (slot: number, more: object = {}): object => ({
  driver: "virtio-blk-pci",
  id: "data-one",
  bus: "br0",
  addr: `0x${slot.toString(16)}`,
  drive: "data-one",
  serial: "one",
  ...more,
});
const node = (set: number, name = "data-one"): object => ({
  driver: "raw",
  "node-name": name,
  "read-only": false,
  file: { driver: "file", filename: `/dev/fdset/${set}`, "read-only": false },
});
const add = (opaque = "data-one"): Line => command("add-fd", { opaque }, { with: "disk" });

/** Disks that are plugged and unplugged, with a guest that lets go of them. */
export const disksScript: readonly Line[] = [
  command("qmp_capabilities"),
  command("cont", undefined, { until: ["RESUME"] }),
  command("query-fdsets"),
  command("add-fd", { opaque: "data-one" }),
  command("remove-fd", { "fdset-id": 0 }),
  add(),
  command("query-fdsets"),
  command("blockdev-add", node(0)),
  command("blockdev-add", node(0)),
  command("remove-fd", { "fdset-id": 0 }),
  command("query-fdsets"),
  command("blockdev-del", { "node-name": "data-two" }),
  command("device_add", disk(25, { drive: "data-two" })),
  command("device_add", disk(25, { bus: "br9" })),
  command("device_add", disk(25)),
  command("device_add", disk(26)),
  command("qom-list", { path: "/machine/peripheral" }),
  command("blockdev-del", { "node-name": "data-one" }),
  // The number of a set is free when its node has gone.
  add("data-two"),
  command("blockdev-add", node(1, "data-two")),
  command("device_add", disk(25, { id: "data-two", drive: "data-two" })),
  command("blockdev-del", { "node-name": "data-two" }),
  command("query-fdsets"),
  command("remove-fd", { "fdset-id": 1 }),
  command("query-fdsets"),
  command("device_del", { id: "data-one" }, { until: gone }),
  command("device_del", { id: "data-one" }),
  command("blockdev-del", { "node-name": "data-one" }),
  command("blockdev-del", { "node-name": "data-one" }),
  command("query-fdsets"),
  command("qom-list", { path: "/machine/peripheral" }),
  command("quit", undefined, { until: ["SHUTDOWN"] }),
];

/** Everything podnet says to a monitor, and what it should never say. */
export const monitorScript: readonly Line[] = [
  ...foreigners,
  ...badLines,
  ...looks,
  ...others,
  ...plugs,
  ...unplugs,
  ...ends,
];
