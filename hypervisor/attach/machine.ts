import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import type { FoundMachine, NicPlace } from "../driver.ts";

/** A foreign machine's answers, not yet validated. */
export interface SaidMachine {
  /** `type` of /machine. */
  readonly type: unknown;
  readonly status: unknown;
  readonly migration: unknown;
  readonly kvm: unknown;
  readonly memory: unknown;
  readonly cpus: unknown;
  /** Device types that are virtio-net-pci. */
  readonly nics: unknown;
  readonly buses: readonly SaidBus[];
}

export interface SaidBus extends BusPlace {
  /** `hotplug-handler`: the device that plugs and unplugs there; empty without one. */
  readonly handler: unknown;
  /** `addr` of the devices on it. */
  readonly taken: readonly unknown[];
}

/** A bus NICs may be plugged into. */
export interface BusPlace {
  readonly id: string;
  /** Where it is in QEMU's tree of objects. */
  readonly path: string;
  readonly kind: "port" | "bridge";
}

/** Bridges by the type of their device: a port takes one device, behind a bridge are 31 slots. */
const bridges: Readonly<Record<string, BusPlace["kind"]>> = {
  "child<pcie-root-port>": "port",
  "child<ioh3420>": "port",
  "child<xio3130-downstream>": "port",
  "child<pcie-pci-bridge>": "bridge",
  "child<pci-bridge>": "bridge",
};
/** More buses than this are not looked at; nor are more devices on one, whose functions are 256. */
const mostBuses = 64;
export const mostDevices = 256;

/** An id as QEMU takes it (util/id.c); it becomes part of paths. */
const usableId = /^[A-Za-z][A-Za-z0-9._-]{0,63}$/;
/**
 * Slots of a bus that is not a port. Slot 0 of a bridge is its own hot-plug controller; slot 0 of
 * pc's bus is the chipset.
 */
const lastSlot = 31;

const nonsense = (what: string): PodnetError =>
  new PodnetError("QMP_PROTOCOL", `The VM's QEMU sent invalid data about ${what}`, {
    hint: "The peer is not a QEMU, or it is broken",
  });

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null;

/** Parses the children of an object from an answer to `qom-list`. Throws `QMP_PROTOCOL`. */
export function parseObjects(answer: unknown): { name: string; type: string }[] {
  if (!Array.isArray(answer)) throw nonsense("its objects");
  return answer.map((each: unknown) => {
    if (!isObject(each) || typeof each["name"] !== "string" || typeof each["type"] !== "string")
      throw nonsense("its objects");
    return { name: each["name"], type: each["type"] };
  });
}

/**
 * The bridges among the devices that have an id: one without cannot be named when something is
 * plugged into it.
 */
export function parseBridges(peripherals: unknown): BusPlace[] {
  return parseObjects(peripherals)
    .flatMap(({ name, type }): BusPlace[] => {
      const kind = Object.hasOwn(bridges, type) ? bridges[type] : undefined;
      if (kind === undefined || !usableId.test(name)) return [];
      return [{ id: name, path: `/machine/peripheral/${name}/${name}`, kind }];
    })
    .sort((a, b) => (a.id < b.id ? -1 : 1))
    .slice(0, mostBuses);
}

/** pc's own bus, where NICs can be plugged without a bridge; q35's root bus has no hot-plug. */
export const pcBus: BusPlace = { id: "pci.0", path: "/machine/i440fx/pci.0", kind: "bridge" };

/**
 * `q35` or `pc` by the type of /machine, such as `pc-q35-7.2-machine`. Throws `UNSUPPORTED`,
 * `QMP_PROTOCOL`.
 */
export function parseMachineType(type: unknown): FoundMachine["type"] {
  if (typeof type !== "string") throw nonsense("its type");
  if (/^(?:pc-)?q35-/.test(type)) return "q35";
  if (type.startsWith("pc-")) return "pc";
  const named = printable(type.replace(/-machine$/, ""));
  throw new PodnetError("UNSUPPORTED", `The machine is a "${named}"`, {
    field: "qmp_socket",
    hint: "podnet plugs NICs into machines of type q35 and pc",
  });
}

/**
 * Whether NICs can be plugged into a machine, and where. Throws `WRONG_STATE` when it does not run
 * or migrates, `UNSUPPORTED` when it cannot hold NICs, `NIC_SLOTS_FULL`, `QMP_PROTOCOL`.
 */
export function parseMachine(said: SaidMachine): Omit<FoundMachine, "pid"> {
  const type = parseMachineType(said.type);
  refuseStanding(said);
  if (!Array.isArray(said.nics)) throw nonsense("its device types");
  if (said.nics.length === 0)
    throw new PodnetError("UNSUPPORTED", "This QEMU has no virtio-net-pci", {
      field: "qmp_socket",
      hint: "Use a QEMU that was built with it; on some systems it is a package of its own",
    });
  return {
    type,
    accelerator: isObject(said.kvm) && said.kvm["enabled"] === true ? "kvm" : "tcg",
    vcpu: parseProcessors(said.cpus).length,
    memoryMib: memoryOf(said.memory),
    places: parsePlaces(type, said.buses),
  };
}

function refuseStanding({ status, migration }: SaidMachine): void {
  if (!isObject(status) || typeof status["status"] !== "string") throw nonsense("its state");
  const moving = isObject(migration) ? migration["status"] : undefined;
  const over = ["completed", "failed", "cancelled", "none", undefined];
  const is = status["status"];
  const what = !over.includes(moving as string | undefined)
    ? "migrates"
    : status["running"] !== true
      ? `does not run: it is "${printable(is)}"`
      : undefined;
  if (what === undefined) return;
  throw new PodnetError("WRONG_STATE", `The machine ${what}`, {
    field: "qmp_socket",
    hint: "Attach it when it runs, where it stays",
  });
}

/** Thread ids of the virtual processors, as QEMU knows them. Throws `QMP_PROTOCOL`. */
export function parseProcessors(cpus: unknown): number[] {
  if (!Array.isArray(cpus) || cpus.length === 0) throw nonsense("its processors");
  return cpus.map((each: unknown) => {
    const id = isObject(each) ? each["thread-id"] : undefined;
    if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 1)
      throw nonsense("its processors");
    return id;
  });
}

function memoryOf(memory: unknown): number {
  if (!isObject(memory)) throw nonsense("its memory");
  const { "base-memory": base, "plugged-memory": plugged = 0 } = memory;
  if (typeof base !== "number" || typeof plugged !== "number") throw nonsense("its memory");
  const mib = Math.round((base + plugged) / 2 ** 20);
  if (!Number.isSafeInteger(mib) || mib < 0 || mib > 2 ** 31) throw nonsense("its memory");
  return mib;
}

/**
 * Free places, ports first: each was made for one device. Throws `UNSUPPORTED`, `NIC_SLOTS_FULL`.
 */
function parsePlaces(type: FoundMachine["type"], buses: readonly SaidBus[]): NicPlace[] {
  const usable = buses.filter(({ handler }) => typeof handler === "string" && handler !== "");
  if (usable.length === 0)
    throw new PodnetError("UNSUPPORTED", `The VM has no bus for NICs`, {
      field: "qmp_socket",
      hint: missing[type],
    });
  const ports = usable.filter(({ kind }) => kind === "port");
  const others = usable.filter(({ kind }) => kind === "bridge");
  const free = [...ports, ...others].flatMap(freeOf);
  if (free.length > 0) return free;
  throw new PodnetError("NIC_SLOTS_FULL", "The VM has no free slot for a NIC", {
    field: "qmp_socket",
    hint: missing[type],
    details: { buses: usable.map(({ id }) => id).join(" ") },
  });
}

const missing: Readonly<Record<FoundMachine["type"], string>> = {
  q35: "Start it with one -device pcie-root-port,id=ID,chassis=N for each NIC, or with -device pcie-pci-bridge,id=ID for up to 31",
  pc: "Leave ACPI hot-plug on, or start it with -device pci-bridge,id=ID,chassis_nr=N",
};

function freeOf({ id, kind, taken }: SaidBus): NicPlace[] {
  if (kind === "port") return taken.length === 0 ? [{ bus: id, slot: 0 }] : [];
  const slots = new Set(
    taken.map((address) => {
      // Device and function number: slot * 8 + function.
      if (typeof address !== "number" || !Number.isInteger(address))
        throw nonsense(`the devices on bus "${id}"`);
      return address >> 3;
    }),
  );
  const all = Array.from({ length: lastSlot }, (_, i) => i + 1);
  return all.filter((slot) => !slots.has(slot)).map((slot) => ({ bus: id, slot }));
}
