import test, { type ExecutionContext } from "ava";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import type {
  BlockDeviceStats,
  QmpArguments,
  QmpCommandName,
  QmpEventName,
  QmpEvents,
  QmpReturn,
  SchemaInfo,
} from "../../hypervisor/qmp/commands.ts";
import { rig } from "./hypervisor-rig.ts";

type Kind = "string" | "boolean" | "int" | "object" | "array" | "enum" | "alternate";
/**
 * The members of a type, each with its kind in QEMU's schema; tsc sees to it that none is
 * forgotten.
 */
type Shape<T> = { readonly [M in KeysOf<T> & string]-?: Kind };
/** Of each type of a union. */
type KeysOf<T> = T extends unknown ? keyof T : never;
type ElementOf<T> = T extends readonly (infer E)[] ? E : T;

/** Members that `commands.ts` gives each command's arguments. */
const argumentShapes: { readonly [C in QmpCommandName]: Shape<QmpArguments<C>> } = {
  // `enable` may be left out: it asks for out-of-band execution.
  qmp_capabilities: {},
  "query-version": {},
  "query-status": {},
  "query-kvm": {},
  "query-chardev": {},
  "query-blockstats": {},
  "query-qmp-schema": {},
  stop: {},
  cont: {},
  quit: {},
  system_powerdown: {},
  system_reset: {},
  getfd: { fdname: "string" },
  closefd: { fdname: "string" },
  netdev_add: { type: "enum", id: "string", fd: "string", fds: "string" },
  netdev_del: { id: "string" },
  // The schema knows only `driver`, `bus` and `id`; the rest are properties of the device, checked
  // below.
  device_add: {
    driver: "string",
    id: "string",
    bus: "string",
    addr: "string",
    netdev: "string",
    mac: "string",
    romfile: "string",
    guest_announce: "boolean",
    mq: "boolean",
    vectors: "int",
    drive: "string",
    serial: "string",
    memdev: "string",
    "node-id": "int",
    "socket-id": "int",
    "die-id": "int",
    "core-id": "int",
    "thread-id": "int",
  },
  device_del: { id: "string" },
  // The set's number may be left out.
  "add-fd": { opaque: "string" },
  // Without `fd` all of the set.
  "remove-fd": { "fdset-id": "int" },
  "query-fdsets": {},
  "blockdev-add": {
    "node-name": "string",
    driver: "enum",
    "read-only": "boolean",
    backing: "alternate",
    file: "alternate",
  },
  "blockdev-del": { "node-name": "string" },
  "object-add": { "qom-type": "enum", id: "string", size: "int" },
  "object-del": { id: "string" },
  "query-hotpluggable-cpus": {},
  "migrate-set-capabilities": { capabilities: "array" },
  "migrate-set-parameters": { "announce-rounds": "int" },
  migrate: { uri: "string" },
  "migrate-incoming": { uri: "string" },
  "query-cpus-fast": {},
  "query-memory-size-summary": {},
  "query-migrate": {},
  // `abstract` may be left out.
  "qom-list-types": { implements: "string" },
  "qom-list": { path: "string" },
  "qom-get": { path: "string", property: "string" },
};
const deviceProperties = {
  "virtio-net-pci": ["addr", "netdev", "mac", "romfile", "guest_announce", "mq", "vectors"],
  "virtio-blk-pci": ["addr", "drive", "serial"],
  "pc-dimm": ["memdev"],
  "qemu64-x86_64-cpu": ["node-id", "socket-id", "die-id", "core-id", "thread-id"],
} as const;
const isProperty = (name: string): boolean =>
  Object.values(deviceProperties).some((names: readonly string[]) => names.includes(name));

type Answering =
  | "query-version"
  | "query-status"
  | "query-kvm"
  | "query-chardev"
  | "query-blockstats"
  | "query-fdsets"
  | "add-fd"
  | "query-hotpluggable-cpus"
  | "query-memory-size-summary"
  | "qom-list";
const returnShapes: { readonly [C in Answering]: Shape<ElementOf<QmpReturn<C>>> } = {
  "query-version": { qemu: "object", package: "string" },
  "query-status": { running: "boolean", status: "enum" },
  "query-kvm": { enabled: "boolean", present: "boolean" },
  "query-chardev": { label: "string", filename: "string", "frontend-open": "boolean" },
  "query-blockstats": { "node-name": "string", stats: "object" },
  "query-fdsets": { "fdset-id": "int", fds: "array" },
  "add-fd": { "fdset-id": "int", fd: "int" },
  "query-hotpluggable-cpus": { type: "string", props: "object", "qom-path": "string" },
  "query-memory-size-summary": { "base-memory": "int", "plugged-memory": "int" },
  "qom-list": { name: "string", type: "string" },
};
const blockStats: Shape<BlockDeviceStats> = {
  rd_bytes: "int",
  rd_operations: "int",
  wr_bytes: "int",
  wr_operations: "int",
};

const eventShapes: { readonly [E in QmpEventName]: Shape<QmpEvents[E]> } = {
  SHUTDOWN: { guest: "boolean", reason: "enum" },
  RESET: { guest: "boolean", reason: "enum" },
  STOP: {},
  RESUME: {},
  DEVICE_DELETED: { device: "string", path: "string" },
  VSERPORT_CHANGE: { id: "string", open: "boolean" },
  ACPI_DEVICE_OST: { info: "object" },
  MIGRATION: { status: "enum" },
};
const optional = new Set([
  "DEVICE_DELETED.device",
  "query-blockstats.node-name",
  "query-hotpluggable-cpus.qom-path",
  "query-memory-size-summary.plugged-memory",
]);

interface Member {
  readonly name: string;
  readonly type: string;
  readonly default?: unknown;
}

/** QEMU's description of itself, by name; types are numbered. */
class Schema {
  readonly #entities: ReadonlyMap<string, SchemaInfo>;

  constructor(entities: readonly SchemaInfo[]) {
    this.#entities = new Map(entities.map((entity) => [entity.name, entity]));
  }

  get(name: string, meta?: string): SchemaInfo {
    const entity = this.#entities.get(name);
    if (entity === undefined || (meta !== undefined && entity["meta-type"] !== meta))
      throw new Error(`QEMU knows no ${meta ?? "type"} "${name}"`);
    return entity;
  }

  /** Members of an object, of an array's elements, with those of the variant named. */
  members(name: string, variant?: string): Member[] {
    const type = this.get(name);
    if (type["meta-type"] === "array") return this.members(type["element-type"] as string);
    const own = type["members"] as Member[];
    const variants = (type["variants"] ?? []) as { case: string; type: string }[];
    const chosen = variants.find((one) => one.case === variant);
    return chosen === undefined ? own : [...own, ...this.members(chosen.type)];
  }

  kind(type: string): string {
    const entity = this.get(type);
    return entity["meta-type"] === "builtin"
      ? (entity["json-type"] as string)
      : entity["meta-type"];
  }
}

function compare(
  t: ExecutionContext,
  schema: Schema,
  what: string,
  shape: Readonly<Record<string, Kind>>,
  members: readonly Member[],
): void {
  for (const [name, kind] of Object.entries(shape)) {
    const member = members.find((one) => one.name === name);
    t.is(member && schema.kind(member.type), kind, `${what}.${name}`);
  }
}

type Properties = Readonly<Record<keyof typeof deviceProperties, readonly string[]>>;

async function schemaOf(): Promise<{ schema: Schema; properties: Properties }> {
  await using it = await rig("deaf");
  const { vm } = await it.start();
  using observer = await QmpClient.open(vm.socketPath("verify"));
  const schema = new Schema(await observer.execute("query-qmp-schema", {}));
  const list = observer.execute as (name: string, args: object) => Promise<unknown>;
  const propertiesOf = async (typename: string): Promise<string[]> => {
    const found = await list.call(observer, "device-list-properties", { typename });
    return (found as { name: string }[]).map(({ name }) => name);
  };
  const properties = {
    "virtio-net-pci": await propertiesOf("virtio-net-pci"),
    "virtio-blk-pci": await propertiesOf("virtio-blk-pci"),
    "pc-dimm": await propertiesOf("pc-dimm"),
    "qemu64-x86_64-cpu": await propertiesOf("qemu64-x86_64-cpu"),
  };
  await vm.stop({ graceMs: 0 });
  return { schema, properties };
}

/** Of commands whose arguments depend on one of them. */
const variants: Readonly<Record<string, string>> = {
  netdev_add: "tap",
  "blockdev-add": "qcow2",
  "object-add": "memory-backend-ram",
};

test("our types are QEMU's", async (t) => {
  const { schema, properties } = await schemaOf();

  for (const [command, shape] of Object.entries(argumentShapes)) {
    const type = schema.get(command, "command")["arg-type"] as string;
    const members = schema.members(type, variants[command]);
    const known = Object.entries(shape).filter(
      ([name]) => command !== "device_add" || !isProperty(name),
    );
    compare(t, schema, command, Object.fromEntries(known), members);
    for (const member of members)
      t.true("default" in member || member.name in shape, `${command} demands ${member.name}`);
  }
  for (const driver of Object.keys(deviceProperties) as (keyof typeof deviceProperties)[])
    for (const property of deviceProperties[driver])
      t.true(properties[driver].includes(property), property);

  for (const [command, shape] of Object.entries(returnShapes)) {
    const members = schema.members(schema.get(command, "command")["ret-type"] as string);
    compare(t, schema, command, shape, members);
    for (const member of members)
      if (member.name in shape)
        t.is("default" in member, optional.has(`${command}.${member.name}`), member.name);
  }
  const block = schema.members(schema.get("query-blockstats", "command")["ret-type"] as string);
  const stats = schema.members(block.find(({ name }) => name === "stats")?.type ?? "");
  compare(t, schema, "stats", blockStats, stats);
  for (const member of stats) if (member.name in blockStats) t.false("default" in member);

  for (const [event, shape] of Object.entries(eventShapes)) {
    const members = schema.members(schema.get(event, "event")["arg-type"] as string);
    compare(t, schema, event, shape, members);
    for (const member of members)
      if (member.name in shape)
        t.is("default" in member, optional.has(`${event}.${member.name}`), member.name);
  }
});
