import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import {
  notifyServiceManager,
  watchdogEveryMs,
} from "../../../../linux/processes/service-manager.ts";
import { NotifySocket } from "../../../lab/notify-socket.ts";

const directory = mkdtempSync(join(tmpdir(), "podnet-notify-"));

for (const address of [join(directory, "notify"), `@podnet-test-${process.pid}`]) {
  test(`a service manager at ${address.startsWith("@") ? "an abstract name" : "a path"} is notified`, (t) => {
    using manager = new NotifySocket(address);
    notifyServiceManager(address, "READY=1");
    notifyServiceManager(address, "STOPPING=1");
    t.deepEqual(manager.read(), ["READY=1", "STOPPING=1"]);
  });
}

test("no receiver, a full queue and no address at all are typed errors, at once", (t) => {
  t.throws(() => notifyServiceManager(join(directory, "missing"), "READY=1"), {
    code: "SYSCALL_FAILED",
  });
  const full = join(directory, "full");
  using _manager = new NotifySocket(full);
  t.throws(
    () => {
      for (;;) notifyServiceManager(full, "READY=1");
    },
    { code: "SYSCALL_FAILED", message: /EAGAIN/ },
  );
  for (const address of ["", "@", "relative", `/${"x".repeat(108)}`])
    t.throws(() => notifyServiceManager(address, "READY=1"), { code: "INVALID_ARGUMENT" }, address);
});

test("a watchdog is notified twice within its time, and only by the process that it watches", (t) => {
  t.is(watchdogEveryMs({ WATCHDOG_USEC: "60000000", WATCHDOG_PID: "7" }, 7), 30_000);
  t.is(watchdogEveryMs({ WATCHDOG_USEC: "1" }, 7), 1);
  t.is(watchdogEveryMs({ WATCHDOG_USEC: "60000000", WATCHDOG_PID: "8" }, 7), undefined);
  for (const usec of [undefined, "", "0", "-1", "1e9", "60s", "9".repeat(16)])
    t.is(watchdogEveryMs({ WATCHDOG_USEC: usec }, 7), undefined, usec ?? "none");
});
