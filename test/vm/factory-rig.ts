import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { systemClock } from "../../core/clock.ts";
import { awaitTemplateGuest } from "../../daemon/pods/guest/template-guest.ts";
import { wakeOf } from "../../daemon/pods/guest/wake.ts";
import { podIdFromBytes } from "../../core/names.ts";
import type { Guest, GuestIdentity } from "../../guest-init/channel/guest.ts";
import { GuestSession, openGuest } from "../../guest-init/channel/session.ts";
import type { RunningVm, VmPlan } from "../../hypervisor/driver.ts";
import type { AwaitGuest } from "../../hypervisor/factory/template.ts";
import type { QemuDriverOptions } from "../../hypervisor/qemu/driver.ts";
import { debianGuest, never, type Rig, rig } from "./hypervisor-rig.ts";

/** What one clone says of itself. */
export interface Self {
  readonly epoch: string | undefined;
  /** Three in a row. */
  readonly uuids: readonly string[];
  /** 32 bytes of /dev/urandom. */
  readonly urandom: string;
  readonly bootId: string;
  readonly machineId: string;
  /** Milliseconds that its clock is ahead, at least and at most. */
  readonly clockAhead: readonly [least: number, most: number];
}

/** A clone that runs. */
export interface Clone extends AsyncDisposable {
  readonly vm: RunningVm;
  readonly guest: Guest;
  /** Runs a program and answers what it wrote. */
  run(...args: readonly string[]): Promise<string>;
  self(): Promise<Self>;
}

/** A driver that clones, and how many templates it has begun to make. */
export interface Factory extends AsyncDisposable {
  readonly rig: Rig;
  readonly templates: readonly RunningVm[];
  plan(): VmPlan;
  /**
   * Starts a clone; `woken` false lets it run without a word of what it is. `asked`: it hears AWAKE
   * and is asked who it is, as one whose agent takes no names.
   */
  clone(options?: { readonly woken?: boolean; readonly asked?: boolean }): Promise<Clone>;
}

export const awaitGuest: AwaitGuest = awaitTemplateGuest(openGuest, 30_000);

/**
 * Comes to an end once the guest has been up for eight seconds; the last thing it does is to draw.
 */
const calmDown = `until read up _ </proc/uptime && [ "\${up%.*}" -ge 8 ]; do sleep 0.1; done
  cat /proc/sys/kernel/random/uuid`;

class CalmGuest extends GuestSession {
  override async ready(signal: AbortSignal): Promise<GuestIdentity> {
    const identity = await super.ready(signal);
    await asking(this).run("sh", "-c", calmDown);
    return identity;
  }
}

/**
 * Waits for a guest that has just drawn and will not draw anew by itself for seconds. (Linux does
 * so a second after it last did, later after half its uptime.) Of a younger template's clones each
 * has randomness of its own by that alone where the host is busy, and what AWAKE is for cannot be
 * seen.
 */
export const awaitCalm: AwaitGuest = awaitTemplateGuest(
  (options) => new CalmGuest(options),
  60_000,
);

export async function factory(
  files: Parameters<typeof rig>[0] = debianGuest,
  options: QemuDriverOptions = {},
): Promise<Factory> {
  await using opened = new AsyncDisposableStack();
  const templates: RunningVm[] = [];
  const it = opened.use(
    await rig(files, {
      ...options,
      awaitGuest: (vm, signal) => {
        templates.push(vm);
        return (options.awaitGuest ?? awaitGuest)(vm, signal);
      },
    }),
  );
  const driver = opened.use(it.driver);
  const plan = (): VmPlan => {
    const podId = podIdFromBytes(randomBytes(12));
    return { ...it.plan, podId, runDir: join(it.directory, podId), factory: "template" };
  };
  const clones = opened.use(new AsyncDisposableStack());
  const held = opened.move();
  return {
    rig: it,
    templates,
    plan,
    async clone({ woken = true, asked = false } = {}) {
      const vm = await driver.start(plan(), never);
      clones.defer(() => vm.stop({ graceMs: 0 }));
      const { twin, ...byAwake } = wakeOf(vm, { clock: systemClock, randomBytes }, never);
      if (twin === undefined) throw new Error("The template's agent takes no names of clones");
      const wake = asked ? byAwake : { ...byAwake, twin };
      const guest = openGuest({
        channelPath: vm.socketPath("channel"),
        ttyPath: vm.socketPath("tty"),
        reattach: !woken,
        ...(woken ? { wake } : {}),
      });
      clones.defer(() => guest.close());
      if (!woken) await vm.resume(never);
      return { vm, guest, ...asking(guest), [Symbol.asyncDispose]: () => vm.stop({ graceMs: 0 }) };
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

function asking(guest: Guest): Pick<Clone, "run" | "self"> {
  const run = async (...args: readonly string[]): Promise<string> => {
    const request = { args, env: {}, workdir: "/", terminal: false };
    const { events } = await guest.exec(request, never);
    const chunks: Uint8Array[] = [];
    for await (const event of events) if (event.kind === "stdout") chunks.push(event.data);
    return Buffer.concat(chunks).toString();
  };
  return {
    run,
    async self() {
      const { epoch } = await guest.ready(never);
      const random = "/proc/sys/kernel/random";
      const script = `cat ${random}/uuid ${random}/uuid ${random}/uuid ${random}/boot_id
        head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n'; echo; cat /etc/machine-id`;
      const lines = (await run("sh", "-c", script)).split("\n");
      const before = Date.now();
      const { clockMs } = await guest.configure(
        { requestId: "clock", interfaces: [], routes: [], neighbours: [], waitMs: 0 },
        never,
      );
      const [bootId, urandom, machineId] = lines.slice(3) as [string, string, string];
      const clockAhead = [clockMs - Date.now(), clockMs - before] as const;
      return { epoch, uuids: lines.slice(0, 3), urandom, bootId, machineId, clockAhead };
    },
  };
}
