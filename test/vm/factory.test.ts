import { createHash } from "node:crypto";
import {
  closeSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
  writeSync,
} from "node:fs";
import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { GuestIdentity } from "../../guest-init/channel/guest.ts";
import { GuestSession, openGuest } from "../../guest-init/channel/session.ts";
import { openTap } from "../../linux/tun.ts";
import { awaitTemplateGuest } from "../../daemon/pods/guest/template-guest.ts";
import { type Clone, type Factory, factory, type Self, awaitCalm } from "./factory-rig.ts";
import { never, nicPlan } from "./hypervisor-rig.ts";

let it: Factory;
test.serial.before(async () => {
  it = await factory(undefined, { awaitGuest: awaitCalm });
});
test.serial.after.always(async () => {
  await it?.[Symbol.asyncDispose]();
});

/** The descriptor under which this process holds a template's file. */
function templateFd(name: string): number {
  const found = readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith(`/memfd:${name} `);
    } catch {
      return false;
    }
  });
  if (found.length !== 1) throw new Error(`${found.length} files "${name}" are open`);
  return Number(found[0]);
}

function digest(fd: number): string {
  const hash = createHash("sha256");
  const chunk = Buffer.alloc(1 << 20);
  for (let at = 0; ; ) {
    const count = readSync(fd, chunk, 0, chunk.length, at);
    if (count === 0) return hash.digest("hex");
    hash.update(chunk.subarray(0, count));
    at += count;
  }
}

/** What two of them have in common. */
const shared = (selves: readonly Self[]): string[] => {
  const all = selves.flatMap(({ epoch, uuids, urandom, bootId, machineId }) => [
    ...uuids,
    epoch ?? "",
    urandom,
    bootId,
    machineId,
  ]);
  return all.filter((each, i) => all.indexOf(each) !== i);
};

/** Files and directories below a rig's own directory, but for the guest's. */
const left = ({ rig: { directory } }: Factory): string[] =>
  readdirSync(directory).filter((name) => !/^(?:kernel|initrd|guest)/.test(name));

test.serial("creates at once share one build", async (t) => {
  const clones = await Promise.all([it.clone(), it.clone(), it.clone()]);
  t.is(it.templates.length, 1);
  const selves = await Promise.all(clones.map((clone) => clone.self()));
  t.deepEqual(shared(selves), []);
  for (const clone of clones) await clone[Symbol.asyncDispose]();
});

test.serial("clones share no randomness, id or epoch, and their clocks are right", async (t) => {
  const clones: Clone[] = [];
  for (let i = 0; i < 6; i++) clones.push(await it.clone({ asked: i % 2 === 0 }));
  const selves = await Promise.all(clones.map((clone) => clone.self()));
  t.is(it.templates.length, 1, "one boot serves them all");
  t.deepEqual(shared(selves), []);
  for (const { uuids, machineId, urandom, clockAhead } of selves) {
    t.true(uuids.every((uuid) => /^[0-9a-f-]{36}$/.test(uuid)));
    t.regex(machineId, /^[0-9a-f]{32}$/);
    t.regex(urandom, /^[0-9a-f]{64}$/);
    const [least, most] = clockAhead;
    t.true(least < 1000 && most > -1000, `the clock is ${least} to ${most} ms ahead`);
  }
  for (const clone of clones) await clone[Symbol.asyncDispose]();
});

test.serial("without AWAKE clones do share, and their clocks stand behind", async (t) => {
  const ready = performance.now();
  const selves: Self[] = [];
  // A kernel that ran for seconds before it was asked has drawn anew by itself; any two that have
  // not are proof.
  const alike = (): boolean => {
    const drawn = selves.map(({ uuids }) => uuids[0]);
    return new Set(drawn).size < drawn.length;
  };
  while (!alike() && selves.length < 8) {
    await using clone = await it.clone({ woken: false });
    selves.push(await clone.self());
  }
  t.true(alike(), selves.map(({ uuids }) => uuids[0]).join(" "));
  t.is(new Set(selves.map(({ epoch }) => epoch)).size, 1);
  await delay(Math.max(0, 2000 - (performance.now() - ready)));
  const late = await (await it.clone({ woken: false })).self();
  t.true(late.clockAhead[1] < -1000, `the clock is ${late.clockAhead[1]} ms ahead`);
});

test.serial(
  "what a clone writes is its own: neither its twins nor the template have it",
  async (t) => {
    const memory = templateFd("podnet-memory");
    const before = digest(memory);
    await using writer = await it.clone();
    await using twin = await it.clone();
    const fill = "head -c 8000000 /dev/zero | tr '\\0' 'P' > /tmp/mark && md5sum /tmp/mark";
    t.regex(await writer.run("sh", "-c", fill), /\/tmp\/mark/);
    t.is(await twin.run("sh", "-c", "ls /tmp/mark 2>/dev/null || echo none"), "none\n");
    await using later = await it.clone();
    t.is(await later.run("sh", "-c", "ls /tmp/mark 2>/dev/null || echo none"), "none\n");
    t.is(digest(memory), before);
  },
);

test.serial("a template cannot be changed, through whatever descriptor", async (t) => {
  await using clone = await it.clone();
  const { pid } = clone.vm.record;
  const inherited = `/proc/${pid}/fd/3`;
  t.regex(readlinkSync(inherited), /^\/memfd:podnet-memory /);
  for (const name of ["podnet-memory", "podnet-state"]) {
    const own = templateFd(name);
    const path = name === "podnet-memory" ? inherited : `/proc/self/fd/${own}`;
    const opened = openSync(path, "r+");
    for (const fd of [opened, own]) {
      t.throws(() => writeSync(fd, Buffer.from("hostile"), 0, 7, 0), { code: "EPERM" });
      t.throws(() => ftruncateSync(fd, 0), { code: "EPERM" });
      t.throws(() => ftruncateSync(fd, 2 ** 31), { code: "EPERM" });
    }
    closeSync(opened);
  }
  const maps = await readFile(`/proc/${pid}/maps`, "utf8");
  const mapped = maps.split("\n").filter((line) => line.includes("/memfd:podnet-memory"));
  t.true(mapped.length > 0);
  t.true(
    mapped.every((line) => / rw-p /.test(line)),
    mapped.join("\n"),
  );
});

test.serial("a guest that does not know AWAKE is not cloned", async (t) => {
  const hyperstart = awaitTemplateGuest(
    (options) => openGuest({ ...options, extension: false }),
    30_000,
  );
  await using other = await factory(undefined, { awaitGuest: hyperstart });
  await t.throwsAsync(other.rig.driver.start(other.plan(), never), {
    code: "UNSUPPORTED",
    message: /plain hyperstart/,
  });
  t.deepEqual(left(other), []);
});

test.serial("an agent that cannot park a NIC gets it plugged in its clones", async (t) => {
  class Earlier extends GuestSession {
    override async ready(signal: AbortSignal): Promise<GuestIdentity> {
      const { features = [], ...identity } = await super.ready(signal);
      return { ...identity, features: features.filter((each) => each !== "parking") };
    }
  }
  const nic = nicPlan(1);
  const start = async (made: Factory): Promise<readonly string[]> => {
    await using tap = openTap(nic.tap);
    const vm = await made.rig.driver.start({ ...made.plan(), nic }, never, tap.fd);
    try {
      const there = await vm.nics(never);
      await vm.plug(nic, tap.fds, never);
      t.deepEqual(await vm.nics(never), [nic.nicId]);
      return there;
    } finally {
      await vm.stop({ graceMs: 0 });
    }
  };
  const awaitGuest = awaitTemplateGuest((options) => new Earlier(options), 30_000);
  await using earlier = await factory(undefined, { awaitGuest });
  t.deepEqual(await start(earlier), []);
  await using today = await factory();
  t.deepEqual(await start(today), [nic.nicId], "with this podnet's agent it is there already");
});

test.serial("a driver that is let go of holds no template; its clones run on", async (t) => {
  await using clone = await it.clone();
  await clone.guest.ready(never);
  t.notThrows(() => templateFd("podnet-memory"));
  await it.rig.driver[Symbol.asyncDispose]();
  t.throws(() => templateFd("podnet-memory"), { message: /^0 files/ });
  t.is(await clone.run("echo", "alive"), "alive\n");
});
