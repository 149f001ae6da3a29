import { readdirSync, readlinkSync, writeFileSync } from "node:fs";
import test, { type ExecutionContext } from "ava";
import { isPodnetError } from "../../core/errors.ts";
import { openGuest } from "../../guest-init/channel/session.ts";
import { awaitTemplateGuest } from "../../daemon/pods/guest/template-guest.ts";
import { type Factory, factory, awaitGuest } from "./factory-rig.ts";
import { debianGuest, never } from "./hypervisor-rig.ts";

/** Nothing of a failed template may be left: no directory, no process, no memory. */
function nothingLeft(t: ExecutionContext, { rig: { directory } }: Factory): void {
  const directories = readdirSync(directory, { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  );
  t.deepEqual(
    directories.map(({ name }) => name),
    [],
  );
  const read = (path: string): string => {
    try {
      return readlinkSync(path);
    } catch {
      return "";
    }
  };
  const there = readdirSync("/proc").filter((pid) =>
    read(`/proc/${pid}/cwd`).startsWith(directory),
  );
  t.deepEqual(there, []);
  const memories = readdirSync("/proc/self/fd").filter((fd) =>
    read(`/proc/self/fd/${fd}`).startsWith("/memfd:podnet-"),
  );
  t.deepEqual(memories, []);
}

test.serial("a template whose QEMU is killed fails the creates that wait for it", async (t) => {
  await using it = await factory(undefined, {
    awaitGuest: (vm, signal) => {
      const waiting = awaitGuest(vm, signal);
      process.kill(vm.record.pid, "SIGKILL");
      return waiting;
    },
  });
  const starts = [1, 2].map(() => it.rig.driver.start(it.plan(), never));
  for (const start of starts)
    await t.throwsAsync(start, { code: "QEMU_EXITED", message: /^No template could be made: / });
  t.is(it.templates.length, 1);
  nothingLeft(t, it);
});

test.serial("a guest that never gets ready: AGENT_TIMEOUT, with its console tail", async (t) => {
  await using it = await factory("chatty", { awaitGuest: awaitTemplateGuest(openGuest, 500) });
  const error = await t.throwsAsync(it.rig.driver.start(it.plan(), never), {
    code: "AGENT_TIMEOUT",
  });
  t.true(isPodnetError(error) && /^x+$/.test(String(error.details["console"])));
  nothingLeft(t, it);
});

test.serial("a guest that restarts before it is ready: BOOT_FAILED", async (t) => {
  await using it = await factory("rebooting");
  await t.throwsAsync(it.rig.driver.start(it.plan(), never), { code: "BOOT_FAILED" });
  nothingLeft(t, it);
});

test.serial("a kernel that is not there, and a driver that cannot clone", async (t) => {
  await using it = await factory({ ...debianGuest, kernel: "/nowhere/vmlinux" });
  await t.throwsAsync(it.rig.driver.start(it.plan(), never), { code: "IMAGE_MISSING" });
  t.is(it.templates.length, 0);
  nothingLeft(t, it);
});

test.serial("a create that is given up while its template is built leaves nothing", async (t) => {
  const caller = new AbortController();
  await using it = await factory(undefined, {
    awaitGuest: (vm, signal) => {
      queueMicrotask(() => caller.abort());
      return awaitGuest(vm, signal);
    },
  });
  await t.throwsAsync(it.rig.driver.start(it.plan(), caller.signal), { code: "CANCELLED" });
  await it.rig.driver[Symbol.asyncDispose]();
  nothingLeft(t, it);
});

test.serial("a clone whose directory cannot be made leaves the template to the next", async (t) => {
  await using it = await factory();
  const plan = it.plan();
  writeFileSync(plan.runDir, "in the way");
  await t.throwsAsync(it.rig.driver.start(plan, never), { code: "SYSCALL_FAILED" });
  await using clone = await it.clone();
  t.is(await clone.run("echo", "alive"), "alive\n");
});
