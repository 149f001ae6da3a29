import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import test from "ava";
import { systemClock } from "../../../core/clock.ts";
import { PodnetError } from "../../../core/errors.ts";
import { parseResolvConf, readHostDns } from "../../../daemon/networks/host-dns.ts";
import { Journal, type NewEvent } from "../../../daemon/events/journal.ts";
import { KeyedLock } from "../../../daemon/reconcile/keyed-lock.ts";
import { consoleTailText, panicBeforeReset } from "../../../daemon/pods/guest/console-tail.ts";
import { shellWord } from "../../../daemon/pods/machine/shell-word.ts";
import { attach } from "../../../daemon/pods/lifecycle/run-steps.ts";
import { hasCapability } from "../../../daemon/main/preflight.ts";
import { Queue } from "../../../core/queue.ts";
import { Database } from "../../../daemon/store/database.ts";

test("resolv.conf is read as resolvers read it", (t) => {
  const text =
    "# comment\nnameserver 127.0.0.53 ; local\nnameserver fe80::1%eth0\nnameserver 9.9.9.9\nsearch a.example b.example\noptions ndots:2 edns0\nnameserver nonsense\n";
  t.deepEqual(parseResolvConf(text), {
    servers: ["127.0.0.53", "9.9.9.9"],
    search: ["a.example", "b.example"],
    options: ["ndots:2", "edns0"],
  } as never);
});

test("behind a stub on loopback the real servers are found", (t) => {
  const files: Record<string, string> = {
    "/etc/resolv.conf": "nameserver 127.0.0.53\nsearch stub\n",
    "/run/systemd/resolve/resolv.conf": "nameserver 192.0.2.53\nsearch real\n",
  };
  t.deepEqual(readHostDns((path) => files[path]).servers, ["192.0.2.53"] as never);
  t.deepEqual(readHostDns((path) => (path.startsWith("/etc") ? files[path] : undefined)).servers, [
    "127.0.0.53",
  ] as never);
  t.deepEqual(readHostDns(() => undefined).servers, []);
  const behind = (...paths: readonly string[]) =>
    readHostDns((path) =>
      path.startsWith("/etc")
        ? "nameserver 127.0.0.1\n"
        : paths.includes(path)
          ? `nameserver 192.0.2.${paths.indexOf(path) + 1}\nnameserver 127.0.0.1\n`
          : "nameserver 127.0.0.1\n",
    ).servers[0];
  for (const path of ["/run/NetworkManager/no-stub-resolv.conf", "/run/dnsmasq/resolv.conf"])
    t.is(behind(path), "192.0.2.1" as never, path);
  t.is(behind(), "127.0.0.1" as never, "what names the stub again is of no use");
});

test("one key is worked on by one at a time and in order, different keys side by side", async (t) => {
  const lock = new KeyedLock<string>();
  const seen: string[] = [];
  const work = (key: string, name: string) =>
    lock.run(key, async () => {
      seen.push(`${name}+`);
      await setImmediate();
      seen.push(`${name}-`);
      if (name === "a1") throw new Error("a failure does not stop the next");
    });
  await Promise.allSettled([work("a", "a1"), work("a", "a2"), work("b", "b1")]);
  t.deepEqual(
    seen.filter((each) => each.startsWith("a")),
    ["a1+", "a1-", "a2+", "a2-"],
  );
  t.true(seen.indexOf("b1+") < seen.indexOf("a1-"));
  t.is(lock.size, 0);
  await lock.idle();
});

const event = (text: string): NewEvent => ({
  kind: "updated",
  podId: "p" as never,
  podName: "n" as never,
  data: { text },
});
const journal = (): Journal =>
  new Journal(Database.openIn(mkdtempSync(join(tmpdir(), "podnet-journal-"))), systemClock);

test("a watcher gets what was and what follows, once and in order", async (t) => {
  const log = journal();
  for (const text of ["1", "2", "3"]) log.emit(event(text));
  const stop = new AbortController();
  const seen: string[] = [];
  for await (const { cursor, data } of log.watch(1, stop.signal)) {
    seen.push(data.text);
    if (cursor === 3) log.emit(event("4"));
    if (cursor === 4) stop.abort();
  }
  t.deepEqual(seen, ["2", "3", "4"]);
});

test("nothing is reported of what was rolled back", async (t) => {
  const log = journal();
  const stop = new AbortController();
  const reader = log.watch(0, stop.signal);
  const reported = reader.next();
  t.throws(() =>
    log.transact("deleted", (emit) => {
      emit(event("never"));
      throw new Error("no");
    }),
  );
  log.emit(event("yes"));
  t.is((await reported).value?.data.text, "yes");
  await reader.return(undefined);
  const [stored] = await Array.fromAsync({
    [Symbol.asyncIterator]: () => log.watch(0, AbortSignal.abort()),
  });
  t.is(stored?.data.text, "yes");
});

test("a reader that is too slow, or comes too late, has to list anew", async (t) => {
  const log = journal();
  const stop = new AbortController();
  const slow = log.watch(0, stop.signal);
  log.emit(event("first"));
  await slow.next();
  for (let i = 0; i < 1100; i++) log.emit(event("more"));
  await t.throwsAsync(
    async () => {
      for await (const _ of slow) await setImmediate();
    },
    { code: "EVENTS_LOST" },
  );
  await t.throwsAsync(log.watch(5000, stop.signal).next(), { code: "EVENTS_LOST" });
});

test("a reader that has left gets no more events", async (t) => {
  const log = journal();
  const stop = new AbortController();
  log.emit(event("first"));
  for (let i = 0; i < 3; i++) {
    const reader = log.watch(0, stop.signal);
    await reader.next();
    t.is(log.readers, 1);
    await reader.return(undefined);
    t.is(log.readers, 0);
  }
});

test("a queue gives what was pushed, up to its end", async (t) => {
  const queue = new Queue<number>();
  queue.push(1);
  const seen: number[] = [];
  const reading = (async () => {
    for await (const value of queue) seen.push(value);
  })();
  await setImmediate();
  queue.push(2);
  queue.end();
  await reading;
  t.deepEqual(seen, [1, 2]);
});

test("a reset is a panic's only when the console ends with it", (t) => {
  const read = (text: string): string | undefined => panicBeforeReset(Buffer.from(text));
  const panic = "[  9.1] Kernel panic - not syncing: sysrq\u001b[31m triggered crash\r\n";
  const trace = "[  9.2] Call Trace:\r\n[  9.3]  dump_stack\r\n";
  const rebooting = "[  9.4] Rebooting in 1 seconds..\r\n";
  const words = "Kernel panic - not syncing: sysrq triggered crash";
  t.is(read(panic + trace + rebooting), words);
  t.is(read(panic), words);
  t.is(read(panic + trace + rebooting + "[  3.0] reboot: Restarting system\r\n"), undefined);
  t.is(read(""), undefined);
  t.is(read(rebooting), undefined);
  t.is(read(`Kernel panic${"x".repeat(5000)}`)?.length, 200);
});

test("a guest's console tail begins at its panic and holds nothing a terminal obeys", (t) => {
  const bytes = Buffer.from(
    "boot\r\n\u001b[31mred\u001b[0m\u0007\n[ 1.0] Kernel panic - not syncing: x\n[ 1.1] CPU: 0\n",
  );
  t.is(consoleTailText(bytes), "[ 1.0] Kernel panic - not syncing: x\n[ 1.1] CPU: 0");
  t.is(consoleTailText(Buffer.from("\u001b[31mred\u001b[0m\u0007\n")), "red");
  t.true(consoleTailText(Buffer.alloc(1 << 20, "a")).length <= 600);
});

test("the first error keeps its word, the others stand behind it", (t) => {
  const first = new PodnetError("QEMU_EXITED", "first", { step: "vm.start", hint: "do" });
  const error = attach(first, [new Error("second")]);
  t.like(error, { code: "QEMU_EXITED", message: "first", step: "vm.start", hint: "do" });
  t.true(error.cause instanceof AggregateError && error.cause.errors.length === 2);
});

test("arguments are written as a shell takes them", (t) => {
  t.is(shellWord("a,b=c"), "a,b=c");
  t.is(shellWord("it's $(x)"), `'it'\\''s $(x)'`);
  t.is(shellWord(""), "''");
});

test("capabilities are read from the kernel's own line", (t) => {
  t.true(hasCapability("Name:\tx\nCapEff:\t0000000000001000\n", 12n));
  t.false(hasCapability("CapEff:\t0000000000000fff\n", 12n));
  t.false(hasCapability("", 12n));
});
