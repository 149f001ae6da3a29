import { dirname } from "node:path";
import { abortError } from "../../core/aborting.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import type { Guest, GuestIdentity, OpenGuestOptions } from "../../guest-init/channel/guest.ts";
import type { GuestConfig, ObservedGuest } from "../../guest-init/protocol/configure.ts";
import type { Machine, Machines } from "./machines.ts";
import type { Process } from "./process.ts";
import type { Random } from "./random.ts";
import type { VirtualTime } from "./time.ts";

/** How often a waiting guest looks again, milliseconds. */
const lookMs = 100;

export interface GuestParts {
  readonly machines: Machines;
  readonly process: Process;
  readonly time: VirtualTime;
  readonly random: Random;
}

/** A guest's agent as one life of the daemon talks to it. */
export function guestDoor(options: OpenGuestOptions, parts: GuestParts): Guest {
  const { machines, process } = parts;
  const machine = machines.of(dirname(options.channelPath));
  const readyListeners = new Set<(identity: GuestIdentity) => void>();
  const closeListeners = new Set<(reason: Error) => void>();
  let lost: Error | undefined;
  let { wake } = options;
  const ready = (identity: GuestIdentity): void =>
    process.hears(() => {
      for (const report of readyListeners) report(identity);
    });
  const close = (reason: Error): void => {
    machine?.readyListeners.delete(ready);
    machine?.closeListeners.delete(close);
    process.hears(() => {
      if (lost !== undefined) return;
      lost = reason;
      for (const report of closeListeners) report(reason);
    });
  };
  machine?.readyListeners.add(ready);
  machine?.closeListeners.add(close);
  if (machine === undefined) close(new PodnetError("AGENT_DISCONNECTED", "There is no machine"));

  /** Waits for an answer of the agent, for as long as it is deaf or `answer` has none. */
  const ask = <T>(
    what: string,
    answer: (machine: Machine) => T | undefined,
    signal: AbortSignal,
  ): Promise<T> =>
    waitFor(what, signal, parts, () => {
      if (lost !== undefined || machine === undefined)
        throw new PodnetError("AGENT_DISCONNECTED", "The channel is lost", { cause: lost });
      return machine.deaf || machine.paused ? undefined : answer(machine);
    });

  return {
    ready: async (signal) => {
      const waking = wake;
      wake = undefined;
      if (machine !== undefined && waking?.twin !== undefined)
        machine.identity = waking.twin.identity;
      await waking?.resume();
      return await ask("ready", ({ identity }) => identity, signal);
    },
    online: () => Promise.resolve(),
    startMain: () => Promise.reject(new PodnetError("UNSUPPORTED", "No main processes here")),
    followMain: () => Promise.reject(new PodnetError("UNSUPPORTED", "No main processes here")),
    containers: () => Promise.reject(new PodnetError("UNSUPPORTED", "No containers here")),
    configure: async (config, signal) => {
      const until = parts.time.monotonicMs + config.waitMs;
      return ask(
        "configure",
        (found) => {
          if (hasNics(found, config)) {
            machines.configured(found, config);
            return observed(config);
          }
          if (parts.time.monotonicMs < until) return undefined;
          throw new PodnetError("AGENT_REFUSED", "An interface did not appear");
        },
        signal,
      );
    },
    placeFile: (_file, signal) => ask("file", () => true as const, signal).then(() => undefined),
    preload: (_program, signal) =>
      ask("preload", () => true as const, signal).then(() => undefined),
    mountShare: (_share, signal) => ask("share", () => true as const, signal).then(() => undefined),
    ping: (signal) => ask("ping", () => true as const, signal).then(() => undefined),
    exec: () => Promise.reject(new PodnetError("UNSUPPORTED", "No processes here")),
    powerOff: async (signal) => {
      await ask("power-off", (found) => (found.poweringOff = true), signal);
      parts.time.after(parts.random.next() * 300, () => {
        if (machine?.alive !== true) return;
        machine.report({ kind: "guest-shutdown" });
        machines.end(machine, "powered off");
      });
    },
    onReady: (listener) => {
      readyListeners.add(listener);
      return () => readyListeners.delete(listener);
    },
    onSlowed: () => () => {},
    onClose: (listener) => {
      closeListeners.add(listener);
      return () => closeListeners.delete(listener);
    },
    close: () => {
      machine?.readyListeners.delete(ready);
      machine?.closeListeners.delete(close);
      readyListeners.clear();
      closeListeners.clear();
      lost ??= new PodnetError("CANCELLED", "Closed by us");
      return Promise.resolve();
    },
  };
}

const hasNics = (machine: Machine, { interfaces }: GuestConfig): boolean =>
  interfaces.every(({ mac, pluggedAs }) =>
    [...machine.nics.values()].some(({ nic }) => nic.mac === mac || nic.mac === pluggedAs),
  );

const observed = (config: GuestConfig): ObservedGuest => ({
  requestId: config.requestId,
  hostname: config.hostname ?? "",
  dns: config.dns ?? { servers: [], search: [], options: [] },
  interfaces: config.interfaces.map(({ name, mac, mtu, addresses }, i) => ({
    name,
    mac,
    mtu: mtu ?? 1500,
    index: i + 2,
    up: true,
    addresses,
  })),
  routes: config.routes,
  clockMs: config.clockMs ?? 0,
  agentRssKib: 1000,
});

async function waitFor<T>(
  what: string,
  signal: AbortSignal,
  { process, time, random }: GuestParts,
  answer: () => T | undefined,
): Promise<T> {
  for (;;) {
    let found: T | undefined;
    try {
      found = await process.later(`guest ${what}`, answer, signal);
    } catch (thrown) {
      if (signal.aborted && !isPodnetError(signal.reason)) throw silent(what, signal);
      throw thrown;
    }
    if (found !== undefined) return found;
    // An agent that will answer only after a while is not asked again and again.
    await time.passed(lookMs * (1 + random.next() * 10));
    if (signal.aborted) throw silent(what, signal);
  }
}

function silent(what: string, signal: AbortSignal): PodnetError {
  const error = abortError(signal, `guest ${what}`);
  return error.code === "DEADLINE_EXCEEDED"
    ? new PodnetError("AGENT_TIMEOUT", `The agent is silent: ${what}`, { cause: error })
    : error;
}
