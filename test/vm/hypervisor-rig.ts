import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseMac } from "../../core/address.ts";
import { parseIfName, podIdFromBytes } from "../../core/names.ts";
import type { NicPlan, RunningVm, VmEvent, VmPlan } from "../../hypervisor/driver.ts";
import {
  openQemuDriver,
  type QemuDriver,
  type QemuDriverOptions,
} from "../../hypervisor/qemu/driver.ts";
import { openTap } from "../../linux/tun.ts";
import { type GuestFiles, type tinyGuests, writeTinyGuest } from "../peers/tiny-guest.ts";

export const never: AbortSignal = new AbortController().signal;

/** The image `scripts/build-image` makes. */
export const debianGuest: GuestFiles = {
  kernel: join(import.meta.dirname, "../../build/image/vmlinux"),
  initrd: join(import.meta.dirname, "../../build/image/initramfs.gz"),
};

/** A directory, a driver and a plan to start VMs from; whatever still runs ends with it. */
export interface Rig extends AsyncDisposable {
  readonly directory: string;
  readonly driver: QemuDriver;
  readonly plan: VmPlan & GuestFiles;
  start(): Promise<Vm>;
}

/** A started VM and everything it has said since. */
export interface Vm {
  readonly vm: RunningVm;
  readonly events: Events;
}

export async function rig(
  guest: keyof typeof tinyGuests | GuestFiles,
  options: QemuDriverOptions = {},
): Promise<Rig> {
  const directory = await mkdtemp(join(tmpdir(), "podnet-hypervisor-"));
  const files = typeof guest === "string" ? await writeTinyGuest(directory, guest) : guest;
  const driver = await openQemuDriver(options);
  // A driver's own timers keep no process alive, so a test that waits for what they find has to.
  const awake = setInterval(() => {}, 60_000);
  const plan: VmPlan & GuestFiles = {
    podId: podIdFromBytes(crypto.getRandomValues(new Uint8Array(12))),
    vcpu: 1,
    memoryMib: 128,
    ...files,
    cmdline: "",
    disks: [],
    runDir: join(directory, "run"),
  };
  return {
    directory,
    driver,
    plan,
    async start() {
      const vm = await driver.start(plan, never);
      return { vm, events: new Events(vm) };
    },
    async [Symbol.asyncDispose]() {
      try {
        await driver.reap(undefined, plan);
        await rm(directory, { recursive: true, force: true });
      } finally {
        clearInterval(awake);
      }
    },
  };
}

/** Collects a VM's events, and waits for them. */
export class Events {
  readonly seen: VmEvent[] = [];
  readonly #waiting = new Set<() => void>();

  constructor(vm: RunningVm) {
    vm.onEvent((event) => {
      // Reported so that they can be counted; nothing follows from them.
      if (event.kind === "unheeded") return;
      this.seen.push(event);
      for (const wake of this.#waiting) wake();
      this.#waiting.clear();
    });
  }

  /** The first event of the kind, now or later. */
  async next<K extends VmEvent["kind"]>(kind: K): Promise<Extract<VmEvent, { kind: K }>> {
    for (;;) {
      const event = this.seen.find((one) => one.kind === kind);
      if (event !== undefined) return event as Extract<VmEvent, { kind: K }>;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiting.add(resolve);
      await promise;
    }
  }
}

export function nicPlan(slot: number): NicPlan {
  return {
    nicId: `nic${slot}`,
    netdevId: `netdev${slot}`,
    fdName: `fd${slot}`,
    tap: parseIfName(`pntap${slot}`),
    mac: parseMac(`52:54:00:00:00:${slot.toString(16).padStart(2, "0")}`),
    slot,
  };
}

/**
 * Opens the plan's tap, plugs it and lets go of our copy: from then on it lives and dies with
 * QEMU's netdev.
 */
export async function plugTap(vm: RunningVm, nic: NicPlan, signal = never): Promise<void> {
  await using tap = openTap(nic.tap);
  await vm.plug(nic, tap.fds, signal);
}
