import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { memorySlots } from "../argv/argv.ts";
import type { VmSize } from "../driver.ts";
import { throwIfAborted } from "../nics/leaving.ts";
import { within } from "../process/connect.ts";
import type { QmpClient } from "../qmp/client.ts";

const mib = 2 ** 20;

export interface GrowthOptions {
  /** The current session; throws when there is none. */
  readonly qmp: () => QmpClient;
  /** Milliseconds the guest gets to look at what was plugged in. */
  readonly takenUpMs: number;
}

/**
 * Processors and memory plugged into one running VM. None is ever unplugged: that needs a guest
 * that can do without, and Linux seldom can. Its owner makes one change at a time.
 */
export class Growth {
  readonly #options: GrowthOptions;
  /** Devices whose guest has not reported yet that it has looked at them, by their ids. */
  readonly #unseen = new Map<string, PromiseWithResolvers<void>>();

  constructor(options: GrowthOptions) {
    this.#options = options;
  }

  /** See `RunningVm.size`. */
  async size(signal: AbortSignal): Promise<VmSize> {
    const qmp = this.#options.qmp();
    const places = await qmp.execute("query-hotpluggable-cpus", {}, { signal });
    const memory = await qmp.execute("query-memory-size-summary", {}, { signal });
    return {
      vcpu: places.filter((place) => place["qom-path"] !== undefined).length,
      memoryMib: (memory["base-memory"] + (memory["plugged-memory"] ?? 0)) / mib,
    };
  }

  /** See `RunningVm.grow`. */
  async grow(size: VmSize, signal: AbortSignal): Promise<"taken" | "ignored"> {
    try {
      const added: string[] = [];
      const missing = size.memoryMib - (await this.size(signal)).memoryMib;
      if (missing > 0) added.push(await this.#plugMemory(missing, signal));
      added.push(...(await this.#plugProcessors(size.vcpu, signal)));
      return await this.#taken(added, signal);
    } catch (error) {
      throw toPodnetError(error).with({ step: "vm.grow" });
    } finally {
      this.#unseen.clear();
    }
  }

  /** The guest has looked at a device (ACPI's _OST), whatever came of it. */
  looked(id: string): void {
    this.#unseen.get(id)?.resolve();
  }

  async #plugMemory(sizeMib: number, signal: AbortSignal): Promise<string> {
    const qmp = this.#options.qmp();
    const number = await this.#freeModule(signal);
    const [id, memdev] = [`dimm${number}`, `memory${number}`];
    throwIfAborted(signal);
    // A command on its way is always awaited: only then is it known what has to be undone.
    await qmp.execute("object-add", {
      "qom-type": "memory-backend-ram",
      id: memdev,
      size: sizeMib * mib,
    });
    try {
      this.#expect(id);
      await qmp.execute("device_add", { driver: "pc-dimm", id, memdev });
    } catch (error) {
      await qmp.execute("object-del", { id: memdev }).catch(() => {});
      throw error;
    }
    return id;
  }

  /** A backend without its module is left where QEMU's session broke in between. */
  async #freeModule(signal: AbortSignal): Promise<number> {
    const qmp = this.#options.qmp();
    const names = async (path: string): Promise<ReadonlySet<string>> =>
      new Set((await qmp.execute("qom-list", { path }, { signal })).map(({ name }) => name));
    const [backends, devices] = [await names("/objects"), await names("/machine/peripheral")];
    for (let number = 0; number < memorySlots; number++) {
      if (devices.has(`dimm${number}`)) continue;
      if (backends.has(`memory${number}`))
        await qmp.execute("object-del", { id: `memory${number}` });
      return number;
    }
    throw new PodnetError(
      "LIMIT_REACHED",
      `The machine was given memory ${memorySlots} times while it runs, and has no slot left`,
      { hint: "Stop the pod, resize it, and start it: then all of its memory is in one piece" },
    );
  }

  async #plugProcessors(wanted: number, signal: AbortSignal): Promise<string[]> {
    const qmp = this.#options.qmp();
    const places = await qmp.execute("query-hotpluggable-cpus", {}, { signal });
    const taken = places.filter((place) => place["qom-path"] !== undefined);
    // QEMU lists the highest first, and Linux numbers them as they come.
    const free = places.filter((place) => place["qom-path"] === undefined).toReversed();
    const added: string[] = [];
    for (const { type, props } of free.slice(0, Math.max(0, wanted - taken.length))) {
      const id = `cpu${taken.length + added.length}`;
      throwIfAborted(signal);
      this.#expect(id);
      await qmp.execute("device_add", { ...props, driver: type, id });
      added.push(id);
    }
    return added;
  }

  #expect(id: string): void {
    this.#unseen.set(id, Promise.withResolvers<void>());
  }

  async #taken(ids: readonly string[], signal: AbortSignal): Promise<"taken" | "ignored"> {
    const looks = Promise.all(ids.flatMap((id) => this.#unseen.get(id)?.promise ?? []));
    const all = looks.then(() => "taken" as const);
    const found = await within(all, this.#options.takenUpMs);
    throwIfAborted(signal);
    return found ?? "ignored";
  }
}
