import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { PodnetError } from "../../../../core/errors.ts";
import { parseIfName, podIdFromBytes } from "../../../../core/names.ts";
import { MachinePool, type PoolParts } from "../../../../daemon/pods/pool/pool.ts";
import { templateNicMac, type VmPlan } from "../../../../hypervisor/driver.ts";
import { openLog } from "../../../../linux/log.ts";
import { until } from "../../../lab/until.ts";

/** What its driver and its guest do. */
interface Behaviour {
  /** Of a machine that is planned now; without one there is no such image. */
  key?: string | undefined;
  ends: boolean;
  readonly starts: boolean;
  readonly rehearses: boolean;
}

/** A pool of one machine, whose driver does as it is behaviour. */
function poolOf(behaviour: Behaviour, image?: string) {
  const directory = mkdtempSync(join(tmpdir(), "podnet-pool-"));
  const did: string[] = [];
  let ids = 0;
  const end = (how: string) => (): Promise<void> => {
    did.push(how);
    return behaviour.ends ? Promise.resolve() : Promise.reject(failure("ending"));
  };
  const planMachine = (): VmPlan => {
    if ("key" in behaviour && behaviour.key === undefined)
      throw new PodnetError("IMAGE_NOT_FOUND", "There is no image");
    const podId = podIdFromBytes(Buffer.alloc(12, ++ids));
    const nic = {
      nicId: "nic0",
      netdevId: "net0",
      fdName: "fd0",
      tap: parseIfName("tap0"),
      mac: templateNicMac,
      slot: 1,
    };
    const machine = { podId, vcpu: 1, memoryMib: 128, cmdline: "", disks: [], nic };
    return { ...machine, factory: "pool", runDir: join(directory, podId) };
  };
  const vm = {
    asleep: true,
    firstNic: "nic0",
    socketPath: () => "",
    pause: () => Promise.resolve(),
    onEvent: () => () => {},
    stop: end("stop"),
  };
  const guest = {
    ready: () => Promise.resolve({}),
    configure: () =>
      behaviour.rehearses ? Promise.resolve() : Promise.reject(failure("rehearsing")),
    exec: () => Promise.reject(new PodnetError("UNSUPPORTED", "This guest runs no programs")),
    close: () => Promise.resolve(),
  };
  const host = {
    driver: {
      cloneKey: () => behaviour.key ?? "alike",
      start: () => (behaviour.starts ? Promise.resolve(vm) : Promise.reject(failure("starting"))),
      reap: end("reap"),
    },
    openTap: () => ({ fd: 0, fds: [0], [Symbol.asyncDispose]: () => Promise.resolve() }),
    openGuest: () => guest,
    clock: { now: () => 0 },
    randomBytes: (count: number) => new Uint8Array(count),
    timeouts: { readyMs: 1000 },
  };
  const pool = new MachinePool({
    config: {
      factory: "pool",
      pool: {
        classes: [{ ...(image === undefined ? {} : { image }), vcpu: 1, memoryMib: 128, size: 1 }],
        reserveMib: 0,
      },
    },
    host: host as unknown as PoolParts["host"],
    log: openLog({ component: "test", level: "silent" }),
    planMachine,
    isBusy: () => false,
  });
  pool.start();
  return {
    pool,
    did,
    fill: () => pool.fill(AbortSignal.timeout(5000)),
    markers: () => (existsSync(directory) ? readdirSync(directory) : []),
    [Symbol.asyncDispose]: async () => {
      behaviour.ends = true;
      await pool[Symbol.asyncDispose]();
      rmSync(directory, { recursive: true });
    },
  };
}

const failure = (what: string): PodnetError => new PodnetError("SYSCALL_FAILED", `${what} fails`);

test("a machine that cannot be ended is ended later", async (t) => {
  const behaviour = { ends: false, starts: true, rehearses: true };
  await using made = poolOf(behaviour);
  await made.fill();
  t.is(made.markers().length, 1);
  await t.throwsAsync(made.pool.drain(), { message: /ending fails/ });
  t.is(made.markers().length, 1, "a podnetd that starts is to know it");
  behaviour.ends = true;
  t.is(await made.pool.drain(), 0);
  t.deepEqual(made.did, ["stop", "stop"]);
  t.deepEqual(made.markers(), []);
});

test("a machine that fails while it is made has its marker until it has ended", async (t) => {
  const cases: [string, Behaviour, string][] = [
    ["starting fails", { ends: false, starts: false, rehearses: true }, "reap"],
    ["rehearsing fails", { ends: false, starts: true, rehearses: false }, "stop"],
  ];
  for (const [message, given, how] of cases) {
    const behaviour = { ...given };
    await using made = poolOf(behaviour);
    await t.throwsAsync(made.fill(), { message });
    t.is(made.markers().length, 1);
    behaviour.ends = true;
    t.is(await made.pool.drain(), 0);
    t.deepEqual(made.did, [how, how]);
    t.deepEqual(made.markers(), []);
  }
});

const asked = (image?: string) => ({
  boot: { cmdline: "", disks: [], ...(image === undefined ? {} : { image }) },
  resources: { vcpu: 1, memoryMib: 128 },
});

test("a machine of an image is offered for that image alone, however its name is written", async (t) => {
  await using made = poolOf({ ends: true, starts: true, rehearses: true }, "app:latest");
  await made.fill();
  t.not(made.pool.offer(asked("app")), undefined);
  t.not(made.pool.offer(asked("app:latest")), undefined);
  for (const other of [undefined, "app:1", "registry.local/app"])
    t.is(made.pool.offer(asked(other)), undefined, other);
});

test("machines of an image that was removed or means another one are ended", async (t) => {
  for (const later of [undefined, "another"]) {
    const behaviour: Behaviour = { ends: true, starts: true, rehearses: true, key: "first" };
    await using made = poolOf(behaviour, "app:1");
    await made.fill();
    const offer = made.pool.offer(asked("app:1"));
    behaviour.key = later;
    made.pool.missed(asked("app:1"), offer);
    await until("its end", () => made.did.includes("stop"));
    if (later === undefined) t.deepEqual(made.markers(), []);
    else await made.fill();
    t.is(made.pool.counts()[0]?.ready, later === undefined ? 0 : 1);
  }
});
