import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  statSync,
} from "node:fs";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import test from "ava";
import { isPodnetError } from "../../core/errors.ts";
import type { VmRecord } from "../../hypervisor/driver.ts";
import { openQemuDriver } from "../../hypervisor/qemu/driver.ts";
import { QmpClient } from "../../hypervisor/qmp/client.ts";
import { fcntl } from "../../linux/ffi/libc.ts";
import { isSameProcess } from "../../linux/processes/proc.ts";
import { Events, never, rig } from "./hypervisor-rig.ts";

test.serial(
  "a VM starts in a session of its own, and nothing is left when it is stopped",
  async (t) => {
    await using it = await rig("deaf");
    const { vm, events } = await it.start();
    const { pid, startTime, uid } = vm.record;
    t.true(isSameProcess(pid, startTime));
    t.is(uid, 0);
    const [, , , , group, session] = readFileSync(`/proc/${pid}/stat`, "latin1").split(" ");
    t.deepEqual([group, session], [`${pid}`, `${pid}`]);
    t.is(statSync(it.plan.runDir).mode & 0o777, 0o700);
    t.is(statSync(vm.socketPath("channel")).mode & 0o077, 0);
    await vm.stop({ graceMs: 0 });
    t.false(isSameProcess(pid, startTime));
    t.deepEqual(
      events.seen.map(({ kind }) => kind),
      ["exited"],
    );
    t.false(existsSync(it.plan.runDir));
    await t.notThrowsAsync(vm.stop({ graceMs: 0 }), "absent is success");
  },
);

test.serial("QEMU inherits none of our descriptors", async (t) => {
  // As a shell or supervisor may have left one open in podnetd: Node marks its own.
  const left = openSync(process.execPath, "r");
  t.teardown(() => closeSync(left));
  const setDescriptorFlags = 2;
  t.is(fcntl(left, setDescriptorFlags, 0), 0);
  await using it = await rig("deaf");
  const { vm } = await it.start();
  const ours = new Set(readdirSync("/proc/self/fd").map((fd) => target("self", fd)));
  const theirs = readdirSync(`/proc/${vm.record.pid}/fd`).map((fd) =>
    target(`${vm.record.pid}`, fd),
  );
  t.deepEqual(
    theirs.filter((name) => /^(?:socket|pipe):/.test(name) && ours.has(name)),
    [],
  );
  t.true(theirs.length > 3 && !theirs.includes(realpathSync(process.execPath)), theirs.join(" "));
  await vm.stop({ graceMs: 0 });
});

/** What a descriptor stands for: a path, or `socket:[1234]`. */
function target(pid: string, fd: string): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`);
  } catch {
    return "gone";
  }
}

test.serial("a run directory far beyond a socket address's length", async (t) => {
  await using it = await rig("deaf");
  const runDir = join(it.directory, "d".repeat(120), "e".repeat(120), "run");
  const plan = { ...it.plan, runDir };
  const vm = await it.driver.start(plan, never);
  t.true(vm.socketPath("qmp").length > 240);
  using observer = await QmpClient.open(vm.socketPath("verify"));
  t.is((await observer.execute("query-status", {})).status, "running");
  await vm.stop({ graceMs: 0 });
  t.false(existsSync(runDir));
});

test.serial(
  "QEMU ending at its start is reported with its own message, and nothing is left",
  async (t) => {
    await using it = await rig("deaf");
    // An ELF file without the PVH note: good enough for preflight, not for QEMU.
    const kernel = join(it.directory, "no-note.elf");
    const bytes = readFileSync(it.plan.kernel);
    bytes.writeUInt32LE(0, 0xc8);
    await writeFile(kernel, bytes);
    const error = await t.throwsAsync(it.driver.start({ ...it.plan, kernel }, never));
    t.like(error, { code: "QEMU_EXITED", step: "vm.start" });
    t.regex(error.message, /PVH ELF Note/);
    t.false(existsSync(it.plan.runDir));
  },
);

test.serial(
  "a directory in the way of a socket is an error, and nothing of ours is left",
  async (t) => {
    await using it = await rig("deaf");
    await mkdir(join(it.plan.runDir, "channel.sock", "x"), { recursive: true });
    t.like(await t.throwsAsync(it.driver.start(it.plan, never)), { code: "SYSCALL_FAILED" });
    t.deepEqual(readdirSync(it.plan.runDir), ["channel.sock"]);
    await rm(it.plan.runDir, { recursive: true });
  },
);

test.serial("a program that is no QEMU, one that ends at once, one that hangs", async (t) => {
  const shell = async (directory: string, body: string): Promise<string> => {
    const path = join(directory, "fake-qemu");
    await writeFile(path, `#!/bin/sh\n${body}\n`, { mode: 0o755 });
    return path;
  };
  await using it = await rig("deaf");
  const cases = [
    ["echo 'no such option' >&2; exit 3", "QEMU_EXITED", /exit code 3: no such option$/],
    ["exit 0", "QEMU_EXITED", /exit code 0/],
    ["exec sleep 60", "QMP_TIMEOUT", /within 200 ms/],
  ] as const;
  for (const [body, code, message] of cases) {
    const qemuPath = await shell(it.directory, body);
    const driver = await openQemuDriver({ qemuPath, socketMs: 200 });
    const error = await t.throwsAsync(driver.start(it.plan, never), { message });
    t.like(error, { code, step: "vm.start" });
    t.false(existsSync(it.plan.runDir));
  }
});

test.serial("a QEMU that talks nonsense is ended, and nothing is left", async (t) => {
  await using it = await rig("deaf");
  const qemuPath = join(it.directory, "fake-qemu.mjs");
  const says = async (expression: string): Promise<void> =>
    await writeFile(
      qemuPath,
      `#!${process.execPath}
import { createServer } from "node:net";
createServer().listen("console.sock");
createServer((socket) => { socket.on("error", () => {}); socket.end(${expression}); }).listen("qmp.sock");
`,
      { mode: 0o755 },
    );
  const driver = await openQemuDriver({ qemuPath });
  for (const expression of ["'nonsense\\n'", "'x'.repeat(5 << 20)", "''"]) {
    await says(expression);
    const error = await t.throwsAsync(driver.start(it.plan, never));
    t.like(error, { code: "QMP_PROTOCOL", step: "vm.start" }, expression);
    t.false(existsSync(it.plan.runDir));
    for (const pid of readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name)))
      t.false(readCommand(pid).includes(qemuPath), "its process has ended");
  }
});

function readCommand(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

test.serial("a QEMU that hangs is killed by force", async (t) => {
  await using it = await rig("deaf");
  const { vm, events } = await it.start();
  process.kill(vm.record.pid, "SIGSTOP");
  await vm.stop({ graceMs: 0 });
  t.regex((await events.next("exited")).detail, /SIGKILL/);
  t.false(existsSync(it.plan.runDir));
});

test.serial("a VM outlives the process that started it, and is found again", async (t) => {
  await using it = await rig("deaf");
  const plan = JSON.stringify(it.plan);
  const daemon = spawn(
    process.execPath,
    [join(import.meta.dirname, "hypervisor-daemon.ts"), plan],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  const [line] = (await once(daemon.stdout, "data")) as [Buffer];
  const record = JSON.parse(line.toString()) as VmRecord;
  daemon.kill("SIGKILL");
  await once(daemon, "exit");
  const vm = await it.driver.reattach(record, it.plan, never);
  if (vm === undefined) throw new Error("the VM was not found again");
  await vm.pause(never);
  const events = new Events(vm);
  const killed = performance.now();
  process.kill(record.pid, "SIGKILL");
  await events.next("exited");
  t.log(`known after ${Math.round(performance.now() - killed)} ms`);
  await vm.stop({ graceMs: 0 });
  t.false(existsSync(it.plan.runDir));
});

test.serial("a caller who gives up during the start leaves nothing", async (t) => {
  await using it = await rig("deaf");
  const gone = new AbortController();
  const starting = it.driver.start(it.plan, gone.signal);
  setImmediate(() => gone.abort());
  t.like(await t.throwsAsync(starting), { code: "CANCELLED" });
  t.false(existsSync(it.plan.runDir));
});

test.serial("what is wrong before anything starts", async (t) => {
  await using it = await rig("deaf");
  const garbage = join(it.directory, "garbage");
  await writeFile(garbage, "x".repeat(1000));
  const empty = join(it.directory, "empty");
  await writeFile(empty, "");
  const disk = (path: string, format: "raw" | "qcow2") => ({
    disks: [{ path, format, readOnly: true }],
  });
  const cases = [
    [{ memoryMib: 64 }, "MEMORY_TOO_SMALL", "resources.memory_mib"],
    [{ kernel: "/nonexistent" }, "IMAGE_MISSING", "boot.kernel"],
    [{ kernel: garbage }, "IMAGE_UNREADABLE", "boot.kernel"],
    [{ kernel: it.directory }, "IMAGE_UNREADABLE", "boot.kernel"],
    [{ initrd: "/nonexistent/initrd" }, "IMAGE_MISSING", "boot.initrd"],
    [{ initrd: empty }, "IMAGE_UNREADABLE", "boot.initrd"],
    [disk("/nonexistent", "raw"), "IMAGE_MISSING", "boot.disks[0].path"],
    [disk(garbage, "qcow2"), "IMAGE_UNREADABLE", "boot.disks[0].path"],
    [{ vcpu: 0 }, "INVALID_ARGUMENT", "resources.vcpu"],
  ] as const;
  for (const [change, code, field] of cases) {
    const error = await t.throwsAsync(it.driver.start({ ...it.plan, ...change }, never));
    t.like(error, { code, field });
    t.true(isPodnetError(error) && error.hint !== undefined);
    t.false(existsSync(it.plan.runDir));
  }
});

test.serial("QEMU missing", async (t) => {
  await using it = await rig("deaf", { qemuPath: "/nonexistent/qemu" });
  const error = await t.throwsAsync(it.driver.start(it.plan, never));
  t.like(error, { code: "QEMU_MISSING" });
  t.regex(isPodnetError(error) ? (error.hint ?? "") : "", /apt-get install qemu-system-x86/);
  t.false(existsSync(it.plan.runDir));
});

test.serial("killing QEMU is an event", async (t) => {
  await using it = await rig("deaf");
  const { vm, events } = await it.start();
  await vm.pause(never);
  await vm.resume(never);
  const killed = performance.now();
  process.kill(vm.record.pid, "SIGKILL");
  const exited = await events.next("exited");
  t.log(`known after ${Math.round(performance.now() - killed)} ms`);
  t.regex(exited.detail, /SIGKILL/);
  t.like(await t.throwsAsync(vm.pause(never)), { code: "QEMU_EXITED" });
  const { promise: reported, resolve } = Promise.withResolvers<string>();
  vm.onEvent(({ kind }) => resolve(kind));
  t.is(await reported, "exited", "who subscribes late hears of it too");
  await vm.stop({ graceMs: 0 });
  t.false(existsSync(it.plan.runDir));
});

test.serial("reattached after the connection was dropped; its end is seen too", async (t) => {
  await using it = await rig("deaf");
  const { vm, events } = await it.start();
  await vm.detach();
  const again = await it.driver.reattach(vm.record, it.plan, never);
  if (again === undefined) throw new Error("the VM was not found again");
  await again.pause(never);
  await again.resume(never);
  const { promise: exited, resolve } = Promise.withResolvers<string>();
  again.onEvent((event) => event.kind === "exited" && resolve(event.detail));
  const killed = performance.now();
  process.kill(vm.record.pid, "SIGKILL");
  await exited;
  t.log(`known after ${Math.round(performance.now() - killed)} ms`);
  t.deepEqual(events.seen, [], "who has let go hears nothing any more");
  t.is(await it.driver.reattach(vm.record, it.plan, never), undefined);
  await it.driver.reap(vm.record, it.plan);
  t.false(existsSync(it.plan.runDir));
});

test.serial("another process with the recorded pid is neither reattached nor killed", async (t) => {
  await using it = await rig("deaf");
  const { vm } = await it.start();
  const other = { ...vm.record, pid: process.pid };
  t.is(await it.driver.reattach(other, it.plan, never), undefined);
  const otherBoot = { ...vm.record, bootId: "00000000-0000-0000-0000-000000000000" };
  t.is(await it.driver.reattach(otherBoot, it.plan, never), undefined);
  await it.driver.reap(otherBoot, { ...it.plan, runDir: "/nonexistent" });
  t.true(isSameProcess(vm.record.pid, vm.record.startTime));
  await vm.stop({ graceMs: 0 });
});

test.serial("reap finds a VM whose record was never written", async (t) => {
  await using it = await rig("deaf");
  const { vm, events } = await it.start();
  await it.driver.reap(undefined, it.plan);
  await events.next("exited");
  t.false(isSameProcess(vm.record.pid, vm.record.startTime));
  t.false(existsSync(it.plan.runDir));
  await t.notThrowsAsync(it.driver.reap(undefined, it.plan), "absent is success");
});

test.serial("a lost QMP session is opened again while QEMU runs", async (t) => {
  const { promise: connected, resolve } = Promise.withResolvers<void>();
  await using it = await rig("deaf", {
    log: (_level, message) => message.includes("again") && resolve(),
  });
  const { vm: first } = await it.start();
  await first.detach();
  // A go-between takes the monitor's place, because QEMU itself never hangs up on a client.
  const path = first.socketPath("qmp");
  await rename(path, `${path}.real`);
  const wires: Socket[] = [];
  const server = createServer((near) => {
    const far = connect(`${path}.real`);
    wires.push(near, far);
    near.pipe(far).pipe(near);
  }).listen(path);
  await once(server, "listening");
  const vm = await it.driver.reattach(first.record, it.plan, never);
  if (vm === undefined) throw new Error("the VM was not found again");
  const events = new Events(vm);
  for (const wire of wires.splice(0)) wire.destroy();
  await connected;
  await vm.pause(never);
  // Its events of that time are lost: who follows it has to ask.
  t.deepEqual(events.seen, [{ kind: "run-state" }, { kind: "run-state", runs: false }]);
  t.deepEqual(await vm.runState(never), { runs: false, status: "paused" });
  for (const wire of wires) wire.destroy();
  server.close();
  await vm.stop({ graceMs: 0 });
  await rm(`${path}.real`, { force: true });
});

test.serial("a guest that powers itself off ends the VM in its own time", async (t) => {
  await using it = await rig("quitting");
  const { vm, events } = await it.start();
  await vm.stop({ graceMs: 10_000 });
  t.deepEqual(
    events.seen.map(({ kind }) => kind),
    ["guest-shutdown", "exited"],
  );
});

test.serial("a guest that resets is an event, and QEMU stays", async (t) => {
  await using it = await rig("rebooting");
  const { vm, events } = await it.start();
  await events.next("guest-reset");
  await vm.stop({ graceMs: 0 });
  t.false(events.seen.some(({ kind }) => kind === "guest-shutdown"));
});

test.serial("a chatty console fills its ring and no more", async (t) => {
  await using it = await rig("chatty");
  const { vm } = await it.start();
  const enough = new AbortController();
  let seen = 0;
  for await (const bytes of vm.console(enough.signal)) {
    seen += bytes.length;
    if (seen > 100_000) enough.abort();
  }
  const tail = vm.consoleTail();
  t.true(tail.length > 0 && tail.length <= 1024 * 1024);
  t.is(Buffer.from(tail.subarray(-100)).toString(), "x".repeat(100));
  await vm.stop({ graceMs: 0 });
});
