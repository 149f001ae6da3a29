import { rehearsalMac } from "../../daemon/pods/pool/park.ts";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ipOf, type Mac } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { GuestIdentity } from "../../guest-init/channel/guest.ts";
import {
  type NicPlan,
  templateNicMac,
  type VmEvent,
  type VmPlan,
  type VmRecord,
} from "../../hypervisor/driver.ts";
import { agentFeatures, type GuestConfig } from "../../guest-init/protocol/configure.ts";
import type { FakeLink } from "./kernel/links.ts";
import type { FakeKernel } from "./kernel/kernel.ts";
import type { Random } from "./random.ts";
import type { VirtualTime } from "./time.ts";

/** What can be amiss with a guest from its birth on. */
export type Character = "good" | "silent" | "panics" | "slow";

/** A virtual machine of the world: it lives on when the daemon dies, and ends with the host. */
export class Machine {
  readonly record: VmRecord;
  readonly plan: VmPlan;
  readonly character: Character;
  /** Descriptors of its taps, by NIC. */
  readonly nics = new Map<string, { readonly nic: NicPlan; readonly fd: number }>();
  /** Names of plugged disks. */
  readonly disks = new Set<string>();
  readonly listeners = new Set<(event: VmEvent) => void>();
  /** Called when the agent is ready anew, and when its channel is lost. */
  readonly readyListeners = new Set<(identity: GuestIdentity) => void>();
  readonly closeListeners = new Set<(reason: Error) => void>();
  /** NICs that the guest has let go of. */
  readonly ejected = new Set<string>();
  alive = true;
  identity: GuestIdentity | undefined;
  /** The agent answers nothing for now. */
  deaf = false;
  poweringOff = false;
  paused = false;
  /** It is a clone of a template, which has had its first NIC from its start. */
  isClone = false;

  constructor(plan: VmPlan, record: VmRecord, character: Character) {
    this.plan = plan;
    this.record = record;
    this.character = character;
  }

  report(event: VmEvent): void {
    for (const listener of this.listeners) listener(event);
  }
}

/** All machines of the host. */
export class Machines {
  readonly all = new Set<Machine>();
  /** Whose each MAC is that a guest ever had. */
  readonly holders = new Map<Mac, string>();
  /** Guests that were configured for more pods than their own. */
  readonly confused: string[] = [];
  /** How often the image was replaced: its clones have another key since. */
  images = 1;
  readonly #kernel: () => FakeKernel;
  readonly #time: VirtualTime;
  readonly #random: Random;
  readonly #trouble: () => number;
  #nextPid = 1000;
  #epochs = 0;
  bootId = "boot-1";

  constructor(parts: {
    readonly kernel: () => FakeKernel;
    readonly time: VirtualTime;
    readonly random: Random;
    /** How likely it is that a guest is not good. */
    readonly trouble: () => number;
  }) {
    this.#kernel = parts.kernel;
    this.#time = parts.time;
    this.#random = parts.random;
    this.#trouble = parts.trouble;
  }

  of(runDir: string): Machine | undefined {
    return [...this.all].find((machine) => machine.plan.runDir === runDir);
  }

  /** A run directory, a process, and a guest that begins to boot. */
  spawn(plan: VmPlan): Machine {
    const bad = this.#random.chance(this.#trouble());
    const character = bad ? this.#random.pick(["silent", "panics", "slow"] as const) : "good";
    const machine = this.#make(plan, character);
    this.#boot(machine);
    return machine;
  }

  /** As a pool's driver does it: a clone, but for one in so many that has to boot. */
  spawnClone(plan: VmPlan & { readonly nic: NicPlan }, tapFd: number): Machine {
    if (this.#random.chance(this.#trouble())) return this.spawn(plan);
    const machine = this.#make(plan, "good");
    machine.isClone = true;
    machine.paused = true;
    this.plug(machine, { ...plan.nic, mac: templateNicMac }, tapFd);
    this.agentStarts(machine);
    return machine;
  }

  #make(plan: VmPlan, character: Character): Machine {
    if (existsSync(plan.runDir))
      throw new PodnetError("SYSCALL_FAILED", `Run directory ${plan.runDir} exists`);
    mkdirSync(plan.runDir, { recursive: true });
    writeFileSync(join(plan.runDir, "qemu.pid"), "");
    const pid = this.#nextPid++;
    const record = {
      pid,
      startTime: String(pid),
      bootId: this.bootId,
      uid: 0,
      runDir: plan.runDir,
    };
    const machine = new Machine(plan, record, character);
    this.all.add(machine);
    return machine;
  }

  #boot(machine: Machine): void {
    const { character } = machine;
    const bootMs = this.#random.next() * (character === "slow" ? 120_000 : 1500);
    this.#time.after(bootMs, () => {
      if (!machine.alive || character === "silent") return;
      if (character === "panics") {
        machine.report({ kind: "guest-reset" });
        return;
      }
      this.agentStarts(machine);
    });
  }

  /** The agent says READY: for the first time, or having forgotten everything. */
  agentStarts(machine: Machine): void {
    const epoch = `epoch-${++this.#epochs}`;
    const features: string[] = machine.isClone ? [agentFeatures.awake, agentFeatures.parking] : [];
    if (machine.isClone && this.#random.chance(0.5))
      features.push(agentFeatures.steps, agentFeatures.twins);
    machine.identity = { api: 4244, extension: 1, agent: "sim", epoch, features };
    for (const report of machine.readyListeners) report(machine.identity);
  }

  /** A NIC that was there from the start has the address again that QEMU knows of. */
  reset(machine: Machine): void {
    const { nic } = machine.plan;
    const found = nic === undefined ? undefined : machine.nics.get(nic.nicId);
    if (machine.isClone && nic !== undefined && found !== undefined)
      machine.nics.set(nic.nicId, { ...found, nic: { ...found.nic, mac: nic.mac } });
    this.agentStarts(machine);
  }

  /** The channel breaks; the agent can be reached again. */
  loseChannel(machine: Machine): void {
    const reason = new PodnetError("AGENT_DISCONNECTED", "The channel broke");
    for (const report of machine.closeListeners) report(reason);
  }

  /** Stops the processors, or lets them run: podnetd or another program. */
  pause(machine: Machine, paused: boolean): void {
    if (machine.paused === paused) return;
    machine.paused = paused;
    machine.report({ kind: "run-state", runs: !paused });
  }

  plug(machine: Machine, nic: NicPlan, fd: number): void {
    if (machine.nics.has(nic.nicId)) throw new PodnetError("QMP_FAILED", `${nic.nicId} is there`);
    machine.nics.set(nic.nicId, { nic, fd: this.#kernel().links.duplicate(fd) });
    machine.ejected.delete(nic.nicId);
  }

  unplug(machine: Machine, nicId: string): void {
    const found = machine.nics.get(nicId);
    if (found === undefined) return;
    machine.nics.delete(nicId);
    this.#kernel().links.closeDescriptor(found.fd);
  }

  /** The guest lets go of a NIC: its tap goes. */
  eject(machine: Machine, nicId: string): void {
    this.unplug(machine, nicId);
    machine.ejected.add(nicId);
    machine.report({ kind: "nic-removed", nicId, expected: false });
  }

  /** The host has heard of a guest's addresses, once it has them. */
  configured(machine: Machine, { requestId, interfaces }: GuestConfig): void {
    const { podId } = machine.plan;
    if (requestId !== podId && requestId !== "park")
      this.confused.push(`the machine of ${podId} is configured for ${requestId}`);
    for (const { mac, pluggedAs, parked, addresses } of interfaces) {
      this.#rename(machine, pluggedAs, mac);
      if (parked === true || mac === rehearsalMac) continue;
      const port = this.#portOf(machine, mac);
      const { links } = this.#kernel();
      const bridge = port === undefined ? undefined : links.find(port.master);
      for (const prefix of addresses) bridge?.neighbours.set(ipOf(prefix), mac);
      this.holders.set(mac, machine.plan.podId);
    }
  }

  /** The guest gives a NIC of its template the pod's address. */
  #rename(machine: Machine, from: Mac | undefined, mac: Mac): void {
    if ([...machine.nics.values()].some(({ nic }) => nic.mac === mac)) return;
    for (const [nicId, { nic, fd }] of machine.nics)
      if (nic.mac === from) machine.nics.set(nicId, { nic: { ...nic, mac }, fd });
  }

  #portOf(machine: Machine, mac: Mac): FakeLink | undefined {
    const found = [...machine.nics.values()].find(({ nic }) => nic.mac === mac);
    return found && this.#kernel().links.find(found.nic.tap);
  }

  /** The process ends, however: its taps with it. Its directory stays. */
  end(machine: Machine, detail: string): void {
    if (!machine.alive) return;
    machine.alive = false;
    this.all.delete(machine);
    for (const nicId of machine.nics.keys()) this.unplug(machine, nicId);
    this.loseChannel(machine);
    machine.report({ kind: "exited", detail });
  }

  /** Ends a machine, and removes its directory. */
  stop(machine: Machine): void {
    this.end(machine, "quit");
    if (this.of(machine.plan.runDir) === undefined)
      rmSync(machine.plan.runDir, { recursive: true, force: true });
  }

  /** Ends what runs in a directory, and removes it. Absent is success. */
  reap(runDir: string): void {
    const machine = this.of(runDir);
    if (machine !== undefined) this.end(machine, "SIGKILL");
    rmSync(runDir, { recursive: true, force: true });
  }

  /** The host goes down: no machine, no directory below /run survives it. */
  reboot(bootId: string): void {
    for (const machine of this.all) {
      machine.alive = false;
      rmSync(machine.plan.runDir, { recursive: true, force: true });
    }
    this.all.clear();
    this.bootId = bootId;
  }
}
