/**
 * The QMP commands and events podnet uses, as QEMU 7.2 defines them (qapi/*.json).
 * `test/vm/hypervisor-qmp-schema.test.ts` compares every member with `query-qmp-schema` of the QEMU
 * at hand.
 */

/** Commands without arguments, or without an answer worth reading. */
type Nothing = Readonly<Record<string, never>>;

interface Command<Arguments, Return> {
  readonly arguments: Arguments;
  readonly return: Return;
}

interface QmpCommands {
  readonly qmp_capabilities: Command<Nothing, Nothing>;
  readonly "query-version": Command<Nothing, VersionInfo>;
  readonly "query-status": Command<Nothing, StatusInfo>;
  readonly "query-kvm": Command<Nothing, { readonly enabled: boolean; readonly present: boolean }>;
  readonly "query-chardev": Command<Nothing, readonly ChardevInfo[]>;
  /** One for each disk; `parseBlockStats` reads what it is for. */
  readonly "query-blockstats": Command<Nothing, readonly BlockStats[]>;
  readonly "query-qmp-schema": Command<Nothing, readonly SchemaInfo[]>;
  readonly stop: Command<Nothing, Nothing>;
  readonly cont: Command<Nothing, Nothing>;
  readonly quit: Command<Nothing, Nothing>;
  readonly system_powerdown: Command<Nothing, Nothing>;
  readonly system_reset: Command<Nothing, Nothing>;
  /** Goes through `QmpClient.passFd` alone, which sends the descriptor with it. */
  readonly getfd: Command<{ readonly fdname: string }, Nothing>;
  readonly closefd: Command<{ readonly fdname: string }, Nothing>;
  /** Goes through `QmpClient.addFd` alone, which sends the descriptor with it. */
  readonly "add-fd": Command<{ readonly opaque: string }, AddedFd>;
  /** Nodes that have opened the descriptor keep their own. */
  readonly "remove-fd": Command<{ readonly "fdset-id": number }, Nothing>;
  /** `parseFdSets` reads what it is for. */
  readonly "query-fdsets": Command<Nothing, readonly FdSet[]>;
  readonly "blockdev-add": Command<BlockNode, Nothing>;
  readonly "blockdev-del": Command<{ readonly "node-name": string }, Nothing>;
  readonly netdev_add: Command<TapNetdev, Nothing>;
  readonly netdev_del: Command<{ readonly id: string }, Nothing>;
  readonly device_add: Command<VirtioNet | VirtioBlk | Processor | MemoryModule, Nothing>;
  readonly device_del: Command<{ readonly id: string }, Nothing>;
  readonly "object-add": Command<MemoryBackend, Nothing>;
  readonly "object-del": Command<{ readonly id: string }, Nothing>;
  /** Every place for a processor, the highest first. */
  readonly "query-hotpluggable-cpus": Command<Nothing, readonly ProcessorPlace[]>;
  readonly "migrate-set-capabilities": Command<
    { readonly capabilities: readonly MigrationCapability[] },
    Nothing
  >;
  readonly "migrate-set-parameters": Command<{ readonly "announce-rounds": number }, Nothing>;
  /** `fd:NAME`, a descriptor given with `getfd`. Never `exec:`: QEMU may start no program. */
  readonly migrate: Command<{ readonly uri: string }, Nothing>;
  readonly "migrate-incoming": Command<{ readonly uri: string }, Nothing>;
  readonly "query-memory-size-summary": Command<Nothing, MemorySizes>;
  /** hypervisor/attach/machine.ts parses a foreign machine's answers to these. */
  readonly "query-cpus-fast": Command<Nothing, unknown>;
  readonly "query-migrate": Command<Nothing, unknown>;
  readonly "qom-list-types": Command<{ readonly implements: string }, unknown>;
  readonly "qom-list": Command<{ readonly path: string }, readonly ObjectProperty[]>;
  readonly "qom-get": Command<{ readonly path: string; readonly property: string }, unknown>;
}

interface VersionInfo {
  readonly qemu: { readonly major: number; readonly minor: number; readonly micro: number };
  readonly package: string;
}

interface StatusInfo {
  readonly running: boolean;
  /** `running`, `paused`, `prelaunch`, `shutdown`, `internal-error` … */
  readonly status: string;
}

interface ChardevInfo {
  readonly label: string;
  readonly filename: string;
  /** For a virtserialport: the guest has it open. */
  readonly "frontend-open": boolean;
}

interface BlockStats {
  /** Absent for a disk that has no node. */
  readonly "node-name"?: string;
  readonly stats: BlockDeviceStats;
}

export interface BlockDeviceStats {
  readonly rd_bytes: number;
  readonly rd_operations: number;
  readonly wr_bytes: number;
  readonly wr_operations: number;
}

export interface SchemaInfo {
  readonly name: string;
  readonly "meta-type": string;
  readonly [member: string]: unknown;
}

/**
 * A tap handed over by `getfd`. `vhost` is never asked for: docs/decisions/0149-no-vhost-net.md.
 */
interface TapNetdev {
  readonly type: "tap";
  readonly id: string;
  /** The name `getfd` was given. */
  readonly fd?: string;
  /** Instead, where the tap has several queues: their names, with colons between. */
  readonly fds?: string;
}

interface VirtioNet {
  readonly driver: "virtio-net-pci";
  readonly id: string;
  readonly bus: string;
  /** Parsed as hexadecimal whatever it looks like: always written with 0x. */
  readonly addr: string;
  readonly netdev: string;
  readonly mac: string;
  /** Empty: no option ROM is loaded, so no ipxe package is needed. */
  readonly romfile: string;
  readonly guest_announce: boolean;
  /** It has as many queues as its tap; `vectors` is then the number of its interrupts. */
  readonly mq?: boolean;
  readonly vectors?: number;
}

interface VirtioBlk {
  readonly driver: "virtio-blk-pci";
  readonly id: string;
  readonly bus: string;
  readonly addr: string;
  /** The name of a node. */
  readonly drive: string;
  /** At most 20 bytes reach the guest. */
  readonly serial: string;
}

/** A place of `query-hotpluggable-cpus`, with QEMU's own names for where it is. */
interface Processor extends PlaceOfProcessor {
  readonly driver: string;
  readonly id: string;
}

/** Where a machine of x86_64 has a processor; a level that it has one of is absent. */
interface PlaceOfProcessor {
  readonly "node-id"?: number;
  readonly "socket-id"?: number;
  readonly "die-id"?: number;
  readonly "core-id"?: number;
  readonly "thread-id"?: number;
}

interface ProcessorPlace {
  /** The device that fits. */
  readonly type: string;
  readonly props: PlaceOfProcessor;
  /** There is a processor. */
  readonly "qom-path"?: string;
}

/** Memory of QEMU's process. */
interface MemoryBackend {
  readonly "qom-type": "memory-backend-ram";
  readonly id: string;
  /** Bytes. */
  readonly size: number;
}

/** Memory of the guest, with a backend behind it. */
interface MemoryModule {
  readonly driver: "pc-dimm";
  readonly id: string;
  readonly memdev: string;
}

/** Bytes; what was plugged in is absent where a machine takes none. */
interface MemorySizes {
  readonly "base-memory": number;
  readonly "plugged-memory"?: number;
}

interface AddedFd {
  readonly "fdset-id": number;
  readonly fd: number;
}

interface FdSet {
  readonly "fdset-id": number;
  readonly fds: readonly { readonly fd: number; readonly opaque?: string }[];
}

/** A disk's file and its format, as `-blockdev` has them too. */
export interface BlockNode {
  readonly "node-name": string;
  readonly driver: "raw" | "qcow2";
  readonly "read-only": boolean;
  /** Of qcow2: nothing lies below it, whatever its header names. */
  readonly backing?: null;
  readonly file: {
    readonly driver: "file" | "host_device";
    readonly filename: string;
    readonly "read-only": boolean;
  };
}

export interface MigrationCapability {
  readonly capability: "x-ignore-shared" | "events";
  readonly state: boolean;
}

interface ObjectProperty {
  readonly name: string;
  /** `child<virtio-net-pci>` for a device. */
  readonly type: string;
}

export type QmpCommandName = keyof QmpCommands;
export type QmpArguments<C extends QmpCommandName> = QmpCommands[C]["arguments"];
export type QmpReturn<C extends QmpCommandName> = QmpCommands[C]["return"];

/** Payloads of the events that podnet listens to. */
export interface QmpEvents {
  readonly SHUTDOWN: { readonly guest: boolean; readonly reason: string };
  readonly RESET: { readonly guest: boolean; readonly reason: string };
  readonly STOP: Nothing;
  readonly RESUME: Nothing;
  /** Sent twice for a virtio device; only the one for the device we named has `device`. */
  readonly DEVICE_DELETED: { readonly device?: string; readonly path: string };
  readonly VSERPORT_CHANGE: { readonly id: string; readonly open: boolean };
  /** The guest reports by ACPI what became of a device: `device` is its id. */
  readonly ACPI_DEVICE_OST: { readonly info: { readonly device?: string } };
  /** `setup`, `active`, `completed`, `failed` …; sent with the capability `events`. */
  readonly MIGRATION: { readonly status: string };
}

export type QmpEventName = keyof QmpEvents;

/** An event as QEMU sent it; QEMU may know events this file does not. */
export interface QmpEvent {
  readonly name: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly timestampMs: number | undefined;
}

type MemberKind = "string" | "boolean" | "object" | "string?";

const eventShapes: {
  readonly [E in QmpEventName]: Readonly<Record<keyof QmpEvents[E] & string, MemberKind>>;
} = {
  SHUTDOWN: { guest: "boolean", reason: "string" },
  RESET: { guest: "boolean", reason: "string" },
  STOP: {},
  RESUME: {},
  DEVICE_DELETED: { device: "string?", path: "string" },
  VSERPORT_CHANGE: { id: "string", open: "boolean" },
  ACPI_DEVICE_OST: { info: "object" },
  MIGRATION: { status: "string" },
};

/**
 * The event's data when it is the named event and every member is what QEMU promises; undefined
 * otherwise.
 */
export function eventData<E extends QmpEventName>(
  event: QmpEvent,
  name: E,
): QmpEvents[E] | undefined {
  if (event.name !== name) return undefined;
  for (const [member, kind] of Object.entries<MemberKind>(eventShapes[name])) {
    const value = event.data[member];
    if (kind === "string?" && value === undefined) continue;
    if (typeof value !== (kind === "string?" ? "string" : kind) || value === null) return undefined;
  }
  return event.data as unknown as QmpEvents[E];
}
