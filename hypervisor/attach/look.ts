import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { FoundMachine } from "../driver.ts";
import type { QmpClient } from "../qmp/client.ts";
import {
  type BusPlace,
  mostDevices,
  parseBridges,
  parseMachine,
  parseMachineType,
  parseObjects,
  pcBus,
  type SaidBus,
} from "./machine.ts";
import { machinePid } from "./process.ts";

/**
 * Asks a foreign machine what it is and where it takes NICs. Changes nothing. The buses are looked
 * at in QEMU's tree of objects: what query-pci knows of a bridge is what firmware has set up there.
 * Throws as `parseMachine`, and what QMP does.
 */
export async function lookAtMachine(qmp: QmpClient, signal: AbortSignal): Promise<FoundMachine> {
  const options = { signal };
  const [type, status, migration, kvm, memory, cpus, nics, peripherals] = await Promise.all([
    qmp.execute("qom-get", { path: "/machine", property: "type" }, options),
    qmp.execute("query-status", {}, options),
    qmp.execute("query-migrate", {}, options),
    qmp.execute("query-kvm", {}, options),
    qmp.execute("query-memory-size-summary", {}, options),
    qmp.execute("query-cpus-fast", {}, options),
    qmp.execute("qom-list-types", { implements: "virtio-net-pci" }, options),
    qmp.execute("qom-list", { path: "/machine/peripheral" }, options),
  ]);
  const own = parseMachineType(type) === "pc" ? [pcBus] : [];
  const buses: SaidBus[] = [];
  let gone: PodnetError | undefined;
  for (const bus of [...parseBridges(peripherals), ...own]) {
    const said = await lookAtBus(qmp, bus, signal);
    if (said instanceof PodnetError) gone = said;
    else buses.push(said);
  }
  // When every bus has gone, the error says why.
  if (buses.length === 0 && gone !== undefined) throw gone;
  return {
    pid: machinePid(qmp, cpus),
    ...parseMachine({ type, status, migration, kvm, memory, cpus, nics, buses }),
  };
}

/** A bus and what is on it; QEMU's refusal when it is not there. */
async function lookAtBus(
  qmp: QmpClient,
  bus: BusPlace,
  signal: AbortSignal,
): Promise<SaidBus | PodnetError> {
  const ask = (path: string, property: string): Promise<unknown> =>
    qmp.execute("qom-get", { path, property }, { signal });
  try {
    const children = parseObjects(await qmp.execute("qom-list", { path: bus.path }, { signal }))
      .filter(({ name }) => /^child\[\d{1,6}\]$/.test(name))
      .slice(0, mostDevices);
    const [handler, ...taken] = await Promise.all([
      ask(bus.path, "hotplug-handler"),
      ...children.map(({ name }) => ask(`${bus.path}/${name}`, "addr")),
    ]);
    return { ...bus, handler, taken };
  } catch (thrown) {
    // It, or something on it, has just been unplugged: what cannot be looked at is not used.
    if (isPodnetError(thrown, "QMP_FAILED")) return thrown;
    throw thrown;
  }
}
