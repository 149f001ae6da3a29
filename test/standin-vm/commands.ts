import { checkArguments, checkId, type Json, type Shape } from "./arguments.ts";
import { addDisk, addFd, addNode, removeFd, removeNode } from "./disk-commands.ts";
import { diskDriver, hotplugBridge, type Machine, nicDriver } from "./machine.ts";
import { getProperty, listObjects } from "./objects.ts";
import { moduleDriver, processorDriver } from "./growth.ts";
import { QmpError } from "./qmp-error.ts";

/** What commands work on alongside the machine. */
export interface CommandContext {
  readonly machine: Machine;
  /** Takes the descriptor that came first of those not yet taken. */
  takeFd(): number | undefined;
  /** For query-chardev. */
  chardevs(): readonly Json[];
  quit(): void;
}

interface Command {
  readonly takes: Shape;
  run(args: Json, context: CommandContext): unknown;
}

export const version = {
  qemu: { micro: 22, minor: 2, major: 7 },
  package: "Debian 1:7.2+dfsg-7+deb12u18+b3",
} as const;

const done = {};
const text = (args: Json, name: string): string => args[name] as string;

const simple = (run: (context: CommandContext) => unknown): Command => ({
  takes: {},
  run: (_, context) => run(context) ?? done,
});
const named = (name: string, run: (value: string, context: CommandContext) => void): Command => ({
  takes: { [name]: "string" },
  run: (args, context) => {
    run(text(args, name), context);
    return done;
  },
});

const commands: Readonly<Record<string, Command>> = {
  "query-version": simple(() => version),
  "query-status": simple(({ machine: { status } }) => ({
    status,
    singlestep: false,
    running: status === "running",
  })),
  "query-kvm": simple(() => ({ enabled: false, present: true })),
  "query-chardev": simple(({ chardevs }) => chardevs()),
  "query-blockstats": simple(({ machine }) => blockStats(machine)),
  "query-pci": simple(({ machine }) => [{ bus: 0, devices: pciDevices(machine) }]),
  cont: simple(({ machine }) => machine.cont()),
  stop: simple(({ machine }) => machine.stop()),
  system_reset: simple(({ machine }) => machine.reset(false)),
  system_powerdown: simple(({ machine }) => machine.powerButton()),
  quit: simple((context) => context.quit()),
  getfd: named("fdname", (name, { machine, takeFd }) => {
    const fd = takeFd();
    if (fd === undefined) throw new QmpError("No file descriptor supplied via SCM_RIGHTS");
    if (/^[0-9]/.test(name))
      throw new QmpError("Parameter 'fdname' expects a name not starting with a digit");
    machine.keepFile(name, fd);
  }),
  closefd: named("fdname", (name, { machine }) => machine.closeFile(name)),
  netdev_del: named("id", (id, { machine }) => machine.removeNetdev(id)),
  device_del: named("id", (id, { machine }) => machine.askToLeave(id)),
  netdev_add: {
    takes: { id: "string", type: "string", fd: "string?", fds: "string?" },
    run: addNetdev,
  },
  device_add: { takes: {}, run: addDevice },
  "add-fd": { takes: { opaque: "string?" }, run: addFd },
  "remove-fd": { takes: { "fdset-id": "any" }, run: removeFd },
  "query-fdsets": simple(({ machine }) => machine.diskFiles.list()),
  "blockdev-add": {
    takes: {
      driver: "string",
      "node-name": "string",
      "read-only": "any",
      backing: "any",
      file: "any",
    },
    run: addNode,
  },
  "blockdev-del": { takes: { "node-name": "string" }, run: removeNode },
  "query-migrate": simple(() => done),
  "object-add": {
    takes: { "qom-type": "string", id: "string", size: "any" },
    run: (args, { machine }) => {
      machine.growth.addBackend(args);
      return done;
    },
  },
  "object-del": named("id", (id, { machine }) => machine.growth.removeBackend(id)),
  "query-hotpluggable-cpus": simple(({ machine }) => machine.growth.places()),
  "query-memory-size-summary": simple(({ machine }) => machine.growth.memory()),
  "query-cpus-fast": simple(({ machine }) => processors(machine)),
  "qom-list-types": {
    takes: { implements: "string" },
    run: (args) => typesOf(text(args, "implements")),
  },
  "qom-list": {
    takes: { path: "string" },
    run: (args, { machine }) => listObjects(machine, text(args, "path")),
  },
  "qom-get": {
    takes: { path: "string", property: "string" },
    run: (args, { machine }) => getProperty(machine, text(args, "path"), text(args, "property")),
  },
};

/** Runs a command. Throws `QmpError`. */
export function runCommand(name: string, args: Json, context: CommandContext): unknown {
  const command = commands[name];
  if (command === undefined)
    throw new QmpError(`The command ${name} has not been found`, "CommandNotFound");
  // The properties of a device are no part of QEMU's schema.
  if (command.run !== addDevice) checkArguments(command.takes, args);
  return command.run(args, context);
}

function addNetdev(args: Json, { machine }: CommandContext): unknown {
  const type = text(args, "type");
  if (type !== "tap") throw new QmpError(`Parameter 'type' does not accept value '${type}'`);
  checkId(text(args, "id"));
  // Of several queues it serves the first, which gets all frames once the others are closed.
  const [fd = "", ...others] = text(args, args["fds"] === undefined ? "fd" : "fds").split(":");
  machine.addTap(text(args, "id"), fd);
  for (const name of others) machine.closeFile(name);
  return done;
}

/** A value as device_add takes it: words and numbers alike. */
const plain = (value: unknown): string =>
  typeof value === "string" ? value : JSON.stringify(value);

const knownProperties = [
  "driver",
  "id",
  "bus",
  "addr",
  "netdev",
  "mac",
  "romfile",
  "guest_announce",
  "mq",
  "vectors",
];

function addDevice(args: Json, context: CommandContext): unknown {
  const { machine } = context;
  const { driver } = args;
  if (driver === undefined) throw new QmpError("Parameter 'driver' is missing");
  if (driver === processorDriver || driver === moduleDriver) {
    checkFreeId(args, machine);
    machine.grow(args);
    return done;
  }
  if (driver !== nicDriver && driver !== diskDriver)
    throw new QmpError(`'${plain(args["driver"])}' is not a valid device model name`);
  const bridge = machine.fixed.find((device) => device.driver === hotplugBridge);
  if (args["bus"] !== bridge?.id) throw new QmpError(`Bus '${plain(args["bus"])}' not found`);
  const id = checkFreeId(args, machine);
  if (driver === diskDriver) return addDisk(args, slotOf(args["addr"]), context);
  const surplus = Object.keys(args).find((name) => !knownProperties.includes(name));
  if (surplus !== undefined) throw new QmpError(`Property '${nicDriver}.${surplus}' not found`);
  const slot = slotOf(args["addr"]);
  const mac = plain(args["mac"]);
  const netdev = text(args, "netdev");
  machine.checkNetdev(netdev);
  if (!/^(?:[0-9a-f]{2}:){5}[0-9a-f]{2}$/i.test(mac))
    throw new QmpError(`Property 'virtio-net-device.mac' doesn't take value '${mac}'`);
  machine.addNic({ id, slot, mac: mac.toLowerCase(), netdev });
  return done;
}

function checkFreeId(args: Json, machine: Machine): string {
  const id = text(args, "id");
  checkId(id);
  if (machine.hasId(id)) throw new QmpError(`Duplicate device ID '${id}'`);
  return id;
}

function slotOf(addr: unknown): number {
  const slot = Number.parseInt(plain(addr), 16);
  if (slot >= 0 && slot <= 31) return slot;
  throw new QmpError(`Property '${nicDriver}.addr' doesn't take value '${plain(addr)}'`);
}

/** Types that are what is asked for: of all there are, NICs alone. */
const typesOf = (implemented: string): readonly Json[] =>
  implemented === nicDriver ? [{ name: nicDriver, parent: `${nicDriver}-base` }] : [];

/** Their threads are one: this process's. */
const processors = ({ growth }: Machine): readonly Json[] =>
  Array.from({ length: growth.processors }, (_, index) => ({
    "thread-id": process.pid,
    props: { "core-id": index, "thread-id": 0, "socket-id": 0 },
    "qom-path": `/machine/unattached/device[${index}]`,
    "cpu-index": index,
    target: "x86_64",
  }));

/** Of disks without reads and writes. */
const blockStats = (machine: Machine): readonly Json[] =>
  machine.fixed
    .filter((device) => device.driver === "virtio-blk-pci")
    .map(({ id }) => ({
      device: "",
      "node-name": id,
      qdev: `/machine/peripheral/${id}/virtio-backend`,
      stats: { rd_bytes: 0, rd_operations: 0, wr_bytes: 0, wr_operations: 0 },
    }));

/** Only what `podnet verify` looks at: the bridge and the NICs on it. */
function pciDevices(machine: Machine): readonly Json[] {
  const bridge = machine.fixed.find((device) => device.driver === hotplugBridge);
  const nics = [...machine.nics.values()].map(({ id, slot }) => ({
    bus: 1,
    slot,
    function: 0,
    qdev_id: id,
    class_info: { class: 0x0200, desc: "Ethernet controller" },
  }));
  return [
    {
      bus: 0,
      slot: 2,
      function: 0,
      qdev_id: bridge?.id ?? "",
      class_info: { class: 0x0604, desc: "PCI bridge" },
      pci_bridge: { devices: nics },
    },
  ];
}
