import type { Json } from "./arguments.ts";
import { diskDriver, hotplugBridge, type Machine, type Nic, nicDriver } from "./machine.ts";
import { noDevice, QmpError } from "./qmp-error.ts";

/** What `type` of /machine is for `-machine q35`. */
const machineType = "pc-q35-7.2-machine";
const peripheral = "/machine/peripheral";

/** A thing in QEMU's tree of objects, as far as tests ask for it. */
interface Thing {
  /** As QEMU calls its type where it has not got a property. */
  readonly type: string;
  readonly properties: readonly Property[];
}

interface Property {
  readonly name: string;
  readonly type: string;
  /** Absent where no test asks for it. */
  readonly value?: unknown;
}

const typeName: Property = { name: "type", type: "string" };
const child = (name: string, of: string): Property => ({ name, type: `child<${of}>` });

/** `qom-list`. Throws `QmpError`. */
export const listObjects = (machine: Machine, path: string): readonly Json[] =>
  thingAt(machine, path).properties.map(({ name, type }) => ({ name, type }));

/** `qom-get`. Throws `QmpError`. */
export function getProperty(machine: Machine, path: string, property: string): unknown {
  const { type, properties } = thingAt(machine, path);
  const found = properties.find(({ name }) => name === property);
  if (found === undefined) throw new QmpError(`Property '${type}.${property}' not found`);
  return found.value;
}

function thingAt(machine: Machine, path: string): Thing {
  const bridge = machine.fixed.find(({ driver }) => driver === hotplugBridge);
  const bus = bridge && `${peripheral}/${bridge.id}/${bridge.id}`;
  if (path === "/objects")
    return {
      type: "container",
      properties: [
        typeName,
        ...machine.growth.backends.map((id) => child(id, "memory-backend-ram")),
      ],
    };
  if (path === "/machine")
    return { type: machineType, properties: [{ ...typeName, value: machineType }] };
  if (path === `${peripheral}-anon`) return { type: "container", properties: [typeName] };
  if (path === peripheral) return { type: "container", properties: inPeripheral(machine) };
  if (bus !== undefined && path === bus) return { type: "PCI", properties: ofBus(machine) };
  const [, on, index] = /^(.*)\/child\[(\d+)\]$/.exec(path) ?? [];
  const nic =
    on === undefined
      ? machine.nics.get(path.replace(`${peripheral}/`, ""))
      : [...machine.nics.values()].find((one) => on === bus && one.index === Number(index));
  if (nic !== undefined) return { type: nicDriver, properties: ofNic(nic, bus) };
  if (!machine.hasId(path.replace(`${peripheral}/`, ""))) throw noDevice(path);
  return { type: "device", properties: [typeName] };
}

const inPeripheral = ({ fixed, nics, disks, growth }: Machine): readonly Property[] => [
  typeName,
  ...fixed.map(({ id, driver }) => child(id, driver)),
  ...[...nics.keys()].map((id) => child(id, nicDriver)),
  ...[...disks.keys()].map((id) => child(id, diskDriver)),
  ...growth.devices.map(([id, driver]) => child(id, driver)),
];

const ofBus = ({ nics }: Machine): readonly Property[] => [
  typeName,
  { name: "realized", type: "bool", value: true },
  { name: "acpi-pcihp-bsel", type: "uint32" },
  ...[...nics.values()].map(({ index }) => ({
    name: `child[${index}]`,
    type: `link<${nicDriver}>`,
  })),
  // The chipset's, of which there is one.
  {
    name: "hotplug-handler",
    type: "link<hotplug-handler>",
    value: "/machine/unattached/device[2]",
  },
];

const ofNic = ({ slot, mac, netdev }: Nic, bus: string | undefined): readonly Property[] => [
  typeName,
  { name: "addr", type: "int32", value: slot * 8 },
  { name: "legacy-addr", type: "str", value: `${slot.toString(16).padStart(2, "0")}.0` },
  { name: "mac", type: "str", value: mac },
  { name: "netdev", type: "str", value: netdev },
  { name: "parent_bus", type: "link<bus>", value: bus },
];
