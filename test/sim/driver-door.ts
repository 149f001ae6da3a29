import { existsSync } from "node:fs";
import { join } from "node:path";
import { PodnetError } from "../../core/errors.ts";
import { KnownGuest } from "../../daemon/pods/guest/template-guest.ts";
import {
  type Driver,
  type RunningVm,
  sizeOf,
  type VmEvent,
  vmSockets,
} from "../../hypervisor/driver.ts";
import type { Machine, Machines } from "./machines.ts";
import type { Process } from "./process.ts";

const nicSlots = 4;

/** The machines of the world as one life of the daemon drives them. */
export function driverDoor(machines: Machines, process: Process): Driver {
  return {
    name: "sim",
    capabilities: () => ({
      hotplug: true,
      pause: true,
      nicSlots,
      arch: "x86_64",
      accelerators: { x86_64: "tcg", arm64: "tcg" },
    }),
    describe: (plan) => ["sim", plan.runDir],
    describePlug: ({ nicId }) => [nicId],
    start: async (plan, signal, tapFd) => {
      const { nic } = plan;
      const cloned = plan.factory !== undefined && nic !== undefined && tapFd !== undefined;
      try {
        const machine = await process.later(
          "qmp spawn",
          () => (cloned ? machines.spawnClone({ ...plan, nic }, tapFd) : machines.spawn(plan)),
          signal,
        );
        await process.later("qmp greeting", () => checkAlive(machine), signal);
        const vm = vmDoor(machine, machines, process);
        if (!machine.isClone || nic === undefined) return vm;
        const { identity } = machine;
        return {
          ...vm,
          asleep: true,
          firstNic: nic.nicId,
          ...(identity === undefined ? {} : { templateGuest: new KnownGuest(identity) }),
        };
      } catch (thrown) {
        // Its contract: a start that failed has left nothing.
        machines.reap(plan.runDir);
        throw thrown;
      }
    },
    cloneKey: ({ vcpu, memoryMib }) => `${vcpu}x${memoryMib} of image ${machines.images}`,
    reattach: async (record, plan, signal) => {
      const machine = await process.later(
        "qmp reattach",
        () => {
          const found = machines.of(plan.runDir);
          return found?.record.pid === record.pid ? found : undefined;
        },
        signal,
      );
      return machine === undefined ? undefined : vmDoor(machine, machines, process);
    },
    running: () =>
      new Map([...machines.all].map(({ plan, record }) => [plan.podId, record.pid] as const)),
    withRemains: (plans) =>
      new Set(
        plans
          .filter(({ runDir }) => machines.of(runDir) !== undefined || existsSync(runDir))
          .map(({ podId }) => podId),
      ),
    recordOf: (plan) => machines.of(plan.runDir)?.record,
    reap: (_record, plan) => process.later("qmp reap", () => machines.reap(plan.runDir)),
  };
}

function checkAlive(machine: Machine): void {
  if (!machine.alive) throw new PodnetError("QEMU_EXITED", "The machine has ended");
}

function vmDoor(machine: Machine, machines: Machines, process: Process): RunningVm {
  const listeners = new Set<(event: VmEvent) => void>();
  const listen = (event: VmEvent): void =>
    process.hears(() => {
      for (const listener of listeners) listener(event);
    });
  machine.listeners.add(listen);
  if (!machine.alive) listen({ kind: "exited", detail: "before a listener was added" });
  const ask = <T>(what: string, body: () => T, signal?: AbortSignal): Promise<T> =>
    process.later(
      `qmp ${what}`,
      () => {
        checkAlive(machine);
        return body();
      },
      signal,
    );
  return {
    record: machine.record,
    socketPath: (which) => join(machine.plan.runDir, vmSockets[which]),
    plug: async (nic, [fd = 0], signal) => {
      if (machine.isClone && nic.nicId === machine.plan.nic?.nicId && machine.nics.has(nic.nicId))
        return;
      try {
        await ask(`plug ${nic.nicId}`, () => machines.plug(machine, nic, fd), signal);
      } catch (thrown) {
        // Its contract: neither netdev nor descriptor stays behind.
        machines.unplug(machine, nic.nicId);
        throw thrown;
      }
    },
    unplug: async (nic, signal) => {
      await ask(`unplug ${nic.nicId}`, () => machines.unplug(machine, nic.nicId), signal);
      return "unplugged";
    },
    nics: (signal) => ask("list nics", () => [...machine.nics.keys()], signal),
    plugDisk: (disk, _fd, signal) =>
      ask(`plug ${disk.name}`, () => void machine.disks.add(disk.name), signal),
    unplugDisk: async (name, signal) => {
      await ask(`unplug ${name}`, () => machine.disks.delete(name), signal);
      return "unplugged";
    },
    hotDisks: (signal) => ask("list disks", () => [...machine.disks], signal),
    endedShares: () => [],
    size: (signal) => ask("query size", () => sizeOf(machine.plan), signal),
    grow: async (_size, signal) => {
      await ask("grow", () => {}, signal);
      return "taken";
    },
    pause: (signal) => ask("stop", () => machines.pause(machine, true), signal),
    resume: (signal) => ask("cont", () => machines.pause(machine, false), signal),
    runState: (signal) =>
      ask(
        "query-status",
        () => ({ runs: !machine.paused, status: machine.paused ? "paused" : "running" }),
        signal,
      ),
    usage: () => ask("usage", () => ({ cpuMs: 0, memoryBytes: 0 })),
    stop: () => process.later("qmp quit", () => machines.stop(machine)),
    // oxlint-disable-next-line require-yield -- a console that says nothing
    console: async function* () {},
    consoleTail: () => new Uint8Array(),
    takeOverwritten: () => 0,
    takeKeyboard: () => ({ type: () => Promise.resolve(), [Symbol.dispose]() {} }),
    onEvent: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    detach: () => {
      machine.listeners.delete(listen);
      return Promise.resolve();
    },
  };
}
