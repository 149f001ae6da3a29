import type { Json } from "./arguments.ts";
import type { CommandLine } from "./command-line.ts";
import { QmpError } from "./qmp-error.ts";

/** The devices that make a machine larger. */
export const processorDriver = "qemu64-x86_64-cpu";
export const moduleDriver = "pc-dimm";

type Line = Pick<CommandLine, "memoryMib" | "processors" | "room">;

/** A machine's processors and memory, and what is plugged in, under the rules of QEMU 7.2. */
export class Growth {
  readonly #line: Line;
  /** Ids by the number of their place. */
  readonly #processors = new Map<number, string>();
  /** Bytes by the backend's id. */
  readonly #backends = new Map<string, number>();
  /** Backends by the module's id. */
  readonly #modules = new Map<string, string>();

  constructor(line: Line) {
    this.#line = line;
  }

  /** Processors that the machine has now. */
  get processors(): number {
    return this.#line.processors + this.#processors.size;
  }

  /** Ids of what is plugged in, with their types. */
  get devices(): readonly (readonly [id: string, driver: string])[] {
    return [
      ...[...this.#processors.values()].map((id) => [id, processorDriver] as const),
      ...[...this.#modules.keys()].map((id) => [id, moduleDriver] as const),
    ];
  }

  get backends(): readonly string[] {
    return [...this.#backends.keys()];
  }

  /** `query-hotpluggable-cpus`: the highest place first. */
  places(): readonly Json[] {
    return Array.from({ length: this.#line.room?.processors ?? this.#line.processors }, (_, i) => ({
      props: { "core-id": i, "thread-id": 0, "node-id": 0, "socket-id": 0 },
      "vcpus-count": 1,
      type: processorDriver,
      ...(this.#isTaken(i) ? { "qom-path": `/machine/unattached/device[${i}]` } : {}),
    })).toReversed();
  }

  /** `query-memory-size-summary`. */
  memory(): Json {
    const plugged = [...this.#modules.values()].map((id) => this.#backends.get(id) ?? 0);
    return {
      "base-memory": this.#line.memoryMib * 2 ** 20,
      "plugged-memory": plugged.reduce((sum, bytes) => sum + bytes, 0),
    };
  }

  /** `object-add` of memory. */
  addBackend({ id, size, "qom-type": type }: Json): void {
    if (type !== "memory-backend-ram") throw new QmpError(`Invalid object type: ${String(type)}`);
    if (this.#backends.has(String(id)))
      throw new QmpError(
        `attempt to add duplicate property '${String(id)}' to object (type 'container')`,
      );
    this.#backends.set(String(id), Number(size));
  }

  /** `object-del`. */
  removeBackend(id: string): void {
    if ([...this.#modules.values()].includes(id))
      throw new QmpError(`object '${id}' is in use, can not be deleted`);
    if (!this.#backends.delete(id)) throw new QmpError(`object '${id}' not found`);
  }

  /** `device_add` of a module or a processor. */
  addDevice(args: Json): void {
    const id = String(args["id"]);
    if (args["driver"] === moduleDriver) return this.#addModule(id, String(args["memdev"]));
    const core = Number(args["core-id"]);
    if (core >= (this.#line.room?.processors ?? 0))
      throw new QmpError(`Invalid CPU core-id: ${core} must be in range`);
    if (this.#isTaken(core)) throw new QmpError(`CPU[${core}] exists`);
    this.#processors.set(core, id);
  }

  #addModule(id: string, memdev: string): void {
    const bytes = this.#backends.get(memdev);
    if (bytes === undefined)
      throw new QmpError(`Property 'pc-dimm.memdev' can't find value '${memdev}'`);
    const { memoryMib, room } = this.#line;
    const { "plugged-memory": plugged } = this.memory();
    const left = ((room?.memoryMib ?? memoryMib) - memoryMib) * 2 ** 20 - Number(plugged);
    if (bytes > left) throw new QmpError("not enough space, currently 0x0 in use");
    this.#modules.set(id, memdev);
  }

  #isTaken(place: number): boolean {
    return place < this.#line.processors || this.#processors.has(place);
  }
}
