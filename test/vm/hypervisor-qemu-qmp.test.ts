import type { EventEmitter } from "node:events";
import { createRequire } from "node:module";
import test from "ava";
import { ownNetns } from "../lab/netns.ts";
import { nicPlan, never, plugTap, rig } from "./hypervisor-rig.ts";

// Evidence for docs/decisions/0004-qmp.md: why npm's qemu-qmp 0.5.0 reads back what we did and does
// nothing itself.

interface NpmQmp extends EventEmitter {
  connect(path: string, callback: (error: Error | null) => void): void;
  execute(command: string, args: object | null, callback: Reply): void;
  destroy(): void;
}
type Reply = (error: Error | null, answer?: unknown) => void;

// It uses util._extend, of which Node warns (DEP0060) in the middle of the tests' output.
process.noDeprecation = true;
// CommonJS without types.
const NpmQmp = createRequire(import.meta.url)("qemu-qmp") as new () => NpmQmp;

test.before(async () => await ownNetns());

async function connect(path: string): Promise<NpmQmp> {
  const qmp = new NpmQmp();
  await new Promise<void>((resolve, reject) =>
    qmp.connect(path, (error) => (error === null ? resolve() : reject(error))),
  );
  // It removes every listener for errors as it connects.
  qmp.on("error", () => {});
  return qmp;
}

const ask = (qmp: NpmQmp, command: string, args: object | null = null): Promise<unknown> =>
  new Promise((resolve, reject) =>
    qmp.execute(command, args, (error, answer) =>
      error === null ? resolve(answer) : reject(error),
    ),
  );

test.serial("an independent client sees the NIC we plugged", async (t) => {
  await using it = await rig("polite");
  const { vm } = await it.start();
  await plugTap(vm, nicPlan(1));
  const observer = await connect(vm.socketPath("verify"));
  const nics = (await ask(observer, "qom-list", { path: "/machine/peripheral" })) as {
    name: string;
    type: string;
  }[];
  t.true(nics.some(({ name, type }) => name === "nic1" && type === "child<virtio-net-pci>"));
  t.is(
    await ask(observer, "qom-get", { path: "/machine/peripheral/nic1", property: "mac" }),
    nicPlan(1).mac,
  );
  observer.destroy();
  await vm.stop({ graceMs: 0 });
});

test.serial("defect: an empty answer shifts every later one to the wrong caller", async (t) => {
  await using it = await rig("deaf");
  const { vm } = await it.start();
  const observer = await connect(vm.socketPath("verify"));
  // `log none` answers with the empty string, which it takes for no answer.
  const shifted = ask(observer, "human-monitor-command", { "command-line": "log none" });
  const status = ask(observer, "query-status");
  void ask(observer, "query-kvm");
  t.like(await shifted, { status: "running" }, "the answer to query-status");
  t.like(await status, { enabled: false }, "the answer to query-kvm");
  observer.destroy();
  await vm.stop({ graceMs: 0 });
});

test.serial("defect: events come without their data", async (t) => {
  await using it = await rig("polite");
  const { vm } = await it.start();
  const observer = await connect(vm.socketPath("verify"));
  await plugTap(vm, nicPlan(1));
  const { promise, resolve } = Promise.withResolvers<unknown[]>();
  observer.once("device_deleted", (...what: unknown[]) => resolve(what));
  await vm.unplug(nicPlan(1), never);
  t.deepEqual(await promise, ["DEVICE_DELETED"], "which device, it does not say");
  observer.destroy();
  await vm.stop({ graceMs: 0 });
});

test.serial("defect: when QEMU dies, whoever waits is never notified", async (t) => {
  await using it = await rig("deaf");
  const { vm, events } = await it.start();
  const observer = await connect(vm.socketPath("verify"));
  let reported = false;
  const closed = new Promise((resolve) => observer.once("close", resolve));
  process.kill(vm.record.pid, "SIGSTOP");
  observer.execute("query-status", null, () => {
    reported = true;
  });
  process.kill(vm.record.pid, "SIGKILL");
  await closed;
  await events.next("exited");
  t.false(reported);
  await vm.stop({ graceMs: 0 });
});
