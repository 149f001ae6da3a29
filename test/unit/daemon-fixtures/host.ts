import { HeldPorts } from "../../../daemon/published/held-ports.ts";
import { systemClock } from "../../../core/clock.ts";
import { PodnetError } from "../../../core/errors.ts";
import type { Host } from "../../../daemon/pods/lifecycle/host.ts";
import type { Guest, GuestIdentity } from "../../../guest-init/channel/guest.ts";
import type { GuestConfig } from "../../../guest-init/protocol/configure.ts";
import type { Driver, RunningVm, VmEvent } from "../../../hypervisor/driver.ts";
import type { IfName, PodId } from "../../../core/names.ts";
import type { NamedLink } from "../../../network/model/observed.ts";
import type { Tap } from "../../../linux/tun.ts";

/** A host that does nothing and tells of it. */
export interface PlayedHost {
  readonly host: Host;
  /** The machine that is started. */
  readonly vm: RunningVm;
  /** Each call, by name and object, in order. */
  readonly calls: string[];
  /** What the guest was told, in order. */
  readonly told: GuestConfig[];
  /** Calls that fail from now on, by how their names begin. */
  readonly failing: Set<string>;
  /** Runs at each call, before it can fail. */
  onCall: (call: string) => void;
  /** The guest answers no further configuration. */
  mute: boolean;
  /** By which a guest's agent is known again; a plain hyperstart has none. */
  epoch: string | undefined;
  /** The guest does not let go of its NICs. */
  keeps: boolean;
  /** It lets go of one it was asked for. */
  letGo(nicId: string): void;
  /** Pids of machines that run, by pod. */
  readonly running: Map<PodId, number>;
  /** Links of the host that can be named. */
  links: NamedLink[];
  /** The guest says READY once more. */
  readyAgain(): void;
  /** Somebody stops the machine, or lets it run. */
  runs(runs: boolean): void;
}

/**
 * The rooms below the daemon, which stand in here only to fail on command and to be watched: the
 * real ones cannot be made to fail at every call. What they do when they work is tested in test/vm.
 */
export function playHost(...fails: readonly string[]): PlayedHost {
  const listeners = new Set<(identity: GuestIdentity) => void>();
  const machine = { runs: true, tell: new Set<(event: VmEvent) => void>() };
  const runs = (now: boolean): void => {
    if (machine.runs === now) return;
    machine.runs = now;
    for (const tell of machine.tell) tell({ kind: "run-state", runs: now });
  };
  const identity = { api: 4244, extension: 1, agent: "test", features: ["loopback"] };
  const played = {
    calls: [] as string[],
    told: [] as GuestConfig[],
    failing: new Set(fails),
    onCall: (_call: string) => {},
    mute: false,
    keeps: false,
    epoch: undefined as string | undefined,
    running: new Map<PodId, number>(),
    links: [] as NamedLink[],
    readyAgain: () => {
      for (const tell of listeners) tell(identity);
    },
    runs,
  };
  const note = (call: string): void => {
    played.calls.push(call);
    played.onCall(call);
    if ([...played.failing].some((each) => call.startsWith(each)))
      throw new PodnetError("SYSCALL_FAILED", `${call} fails`);
  };
  const act = async (call: string): Promise<void> => {
    note(call);
    await new Promise((resolve) => setImmediate(resolve));
  };
  const off = (): (() => void) => () => {};
  const guest = {
    ready: async (): Promise<GuestIdentity> => {
      await act("ready");
      return played.epoch === undefined ? identity : { ...identity, epoch: played.epoch };
    },
    configure: async (message: GuestConfig, signal: AbortSignal) => {
      await act("configure");
      played.told.push(message);
      if (played.mute) await aborted(signal);
      const interfaces = message.interfaces.map((each) => ({ ...each, index: 1, up: true }));
      return { ...message, interfaces };
    },
    powerOff: () => act("power-off"),
    close: () => act("guest-close"),
    onReady: (tell: (identity: GuestIdentity) => void) => {
      listeners.add(tell);
      return () => listeners.delete(tell);
    },
    onSlowed: off,
    onClose: off,
  } as unknown as Guest;
  const nics = new Set(["nic0"]);
  const vm = {
    record: { pid: 1, startTime: "1", bootId: "b", uid: 0, runDir: "/nowhere" },
    socketPath: () => "/nowhere/x",
    plug: ({ nicId }: { nicId: string }) => act(`plug ${nicId}`).then(() => nics.add(nicId)),
    unplug: async ({ nicId }: { nicId: string }) => {
      await act(`unplug ${nicId}`);
      if (played.keeps) return "pending";
      nics.delete(nicId);
      return "unplugged";
    },
    stop: () => act("stop"),
    nics: () => Promise.resolve([...nics]),
    detach: () => act("vm-detach"),
    pause: () => act("pause").then(() => runs(false)),
    resume: () => act("resume").then(() => runs(true)),
    runState: async () => {
      note("run-state");
      return { runs: machine.runs, status: machine.runs ? "running" : "paused" };
    },
    onEvent: (tell: (event: VmEvent) => void) => {
      machine.tell.add(tell);
      return () => machine.tell.delete(tell);
    },
    consoleTail: () => new Uint8Array(),
  } as unknown as RunningVm;
  const host = {
    driver: {
      start: () => act("start").then(() => vm),
      reattach: () => act("reattach").then(() => vm),
      reap: () => act("reap"),
      running: () => played.running,
      recordOf: () => undefined,
      describe: () => [],
      capabilities: () => ({ nicSlots: 31, bringsOwnNetwork: false }),
    } as unknown as Driver,
    network: {
      ensure: () => act("ensure"),
      detach: ({ tap }: { tap: string }) => act(`detach ${tap}`),
      remove: () => act("remove"),
      withdraw: () => act("withdraw"),
      forget: () => act("forget"),
      endFlows: () => Promise.resolve(),
      observeNamed: (names: readonly IfName[]) =>
        Promise.resolve(played.links.filter(({ name }) => names.includes(name))),
    },
    published: new HeldPorts(),
    clock: systemClock,
    openTap: (name: string): Tap => {
      note(`open ${name}`);
      return { name, fd: 9, close: () => act(`close ${name}`) } as unknown as Tap;
    },
    openGuest: () => guest,
    randomBytes: (count: number) => crypto.getRandomValues(new Uint8Array(count)),
    recordRun: () => played.calls.push("record"),
    timeouts: { readyMs: 1000, stopMs: 1000, powerButtonMs: 1000 },
  } as unknown as Host;
  const letGo = (nicId: string): void => {
    nics.delete(nicId);
    for (const tell of machine.tell) tell({ kind: "nic-removed", nicId, expected: true });
  };
  return Object.assign(played, { host, vm, letGo });
}

const aborted = (signal: AbortSignal): Promise<never> =>
  new Promise((_resolve, reject) => {
    const give = (): void => reject(signal.reason as Error);
    if (signal.aborted) give();
    else signal.addEventListener("abort", give, { once: true });
  });
