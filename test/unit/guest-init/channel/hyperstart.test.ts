import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { parseCidr, parseIp, parseIpPrefix, parseUnicastMac } from "../../../../core/address.ts";
import type { ExecSession } from "../../../../guest-init/channel/guest.ts";
import { type GuestSession, openGuest } from "../../../../guest-init/channel/session.ts";
import { command, commandName } from "../../../../guest-init/protocol/codes.ts";
import type { GuestConfig } from "../../../../guest-init/protocol/configure.ts";
import {
  type HyperstartOptions,
  type HyperstartPeer,
  startHyperstartPeer,
} from "../../../peers/hyperstart.ts";

// The peer was written from the recorded facts by someone who had not read our code.

const never = new AbortController().signal;
const mac = "52:54:00:00:00:07";

interface Pair extends AsyncDisposable {
  readonly peer: HyperstartPeer;
  readonly guest: GuestSession;
  /** A guest, found again by a new daemon, which has it on record or not. */
  reopen(configuredBefore?: boolean): GuestSession;
  /** Names of what was sent, but for execs. */
  commands(): string[];
}

async function pair(options: Partial<HyperstartOptions> = {}): Promise<Pair> {
  const directory = mkdtempSync(path.join(tmpdir(), "podnet-hyper-"));
  const channelPath = path.join(directory, "hyper.sock");
  const ttyPath = path.join(directory, "tty.sock");
  const peer = await startHyperstartPeer({
    controlPath: channelPath,
    ttyPath,
    links: [{ name: "eth0", mac }],
    ...options,
  });
  const opened: GuestSession[] = [];
  const open = (reattach: boolean, configuredBefore = false): GuestSession => {
    const guest = openGuest({ channelPath, ttyPath, reattach, configuredBefore });
    opened.push(guest);
    return guest;
  };
  return {
    peer,
    guest: open(options.ready === false),
    reopen: (configuredBefore) => open(true, configuredBefore),
    commands: () =>
      peer.received
        .filter(({ code }) => code !== command.execCmd)
        .map(({ code }) => commandName(code)),
    async [Symbol.asyncDispose]() {
      for (const guest of opened) await guest.close();
      await peer.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

const config: GuestConfig = {
  requestId: "r1",
  hostname: "pod-one",
  dns: { servers: [parseIp("8.8.8.8")], search: ["a.b"], options: ["ndots:2"] },
  interfaces: [
    { mac: parseUnicastMac(mac), name: "eth0", addresses: [parseIpPrefix("192.168.123.2/24")] },
  ],
  routes: [
    { destination: parseCidr("0.0.0.0/0"), gateway: parseIp("192.168.123.1"), interface: "eth0" },
  ],
  neighbours: [],
  waitMs: 2000,
};

const request = (...args: string[]) => ({ args, env: { A: "1" }, workdir: "/", terminal: false });

async function outcome(session: ExecSession): Promise<[out: string, err: string, code: number]> {
  let [out, err, code] = ["", "", -1];
  for await (const event of session.events)
    if (event.kind === "exit") code = event.code;
    else if (event.kind === "stdout") out += Buffer.from(event.data).toString("latin1");
    else err += Buffer.from(event.data).toString("latin1");
  return [out, err, code];
}

test("it says READY, and is asked who it is", async (t) => {
  await using both = await pair({ bootMs: 50 });
  t.deepEqual(await both.guest.ready(never), { api: 4244, extension: undefined, agent: undefined });
  t.deepEqual(both.commands(), ["getVersion", "hello"]);
  await both.guest.ping(never);
});

for (const ip of ["busybox", "iproute2"] as const)
  test(`configure: set up, read back (${ip})`, async (t) => {
    await using both = await pair({ ip });
    const observed = await both.guest.configure(config, never);
    t.like(both.peer.state, { hostname: "pod-one" });
    t.like(
      both.peer.state.links.find((link) => link.name === "eth0"),
      { up: true, addresses: ["192.168.123.2/24"] },
    );
    t.like(observed, { requestId: "r1", dns: config.dns });
    t.like(observed.interfaces, [{ name: "eth0", mac, up: true, addresses: ["192.168.123.2/24"] }]);
    t.true(observed.routes.some((route) => route.gateway === "192.168.123.1"));
    // Once more is no work, and above all no second STARTPOD.
    const before = both.commands().length;
    await both.guest.configure(config, never);
    t.is(both.commands().length, before);
  });

test("configure waits for a card that comes later", async (t) => {
  await using both = await pair({ links: [] });
  const configured = both.guest.configure(config, never);
  await both.guest.ping(never);
  both.peer.addLink("eth0", mac);
  t.like((await configured).interfaces, [{ name: "eth0", mac }]);
});

test("a card found by its MAC gets the name that was asked for", async (t) => {
  await using both = await pair({
    links: [
      { name: "eth0", mac: "52:54:00:00:00:01" },
      { name: "eth1", mac },
    ],
  });
  const [wanted] = config.interfaces;
  const observed = await both.guest.configure(
    {
      ...config,
      interfaces: [{ ...(wanted as NonNullable<typeof wanted>), name: "net0", mtu: 1300 }],
      routes: config.routes.map((route) => ({ ...route, interface: "net0" })),
    },
    never,
  );
  t.like(
    observed.interfaces.find((each) => each.mac === mac),
    { name: "net0", mtu: 1300, up: true },
  );
  t.is(observed.routes.find((route) => route.destination === "0.0.0.0/0")?.interface, "net0");
});

test("a live change flushes routes, and they are there again", async (t) => {
  await using both = await pair();
  await both.guest.configure(config, never);
  const [wanted] = config.interfaces;
  const addresses = [parseIpPrefix("192.168.123.9/24"), parseIpPrefix("10.0.0.9/8")];
  const observed = await both.guest.configure(
    { ...config, interfaces: [{ ...(wanted as NonNullable<typeof wanted>), addresses }] },
    never,
  );
  t.deepEqual([...(observed.interfaces[0]?.addresses ?? [])].sort(), [...addresses].sort());
  t.true(observed.routes.some((route) => route.gateway === "192.168.123.1"));
});

test("an address that stays outlives the first of its subnet", async (t) => {
  await using both = await pair({
    links: [{ name: "eth0", mac, addresses: ["192.168.123.77/24", "192.168.123.2/24"] }],
  });
  const observed = await both.guest.configure(config, never);
  t.deepEqual(observed.interfaces[0]?.addresses as unknown, ["192.168.123.2/24"]);
});

test("another default route gives way", async (t) => {
  await using both = await pair({
    links: [{ name: "eth0", mac, addresses: ["192.168.123.2/24"] }],
    routes: [{ dest: "default", gateway: "192.168.123.254" }],
  });
  const observed = await both.guest.configure(config, never);
  t.deepEqual(
    observed.routes.filter((r) => r.destination === "0.0.0.0/0").map((r) => r.gateway as string),
    ["192.168.123.1"],
  );
});

test("a route that is taken away goes, one that this podnetd did not send stays", async (t) => {
  await using both = await pair();
  const more = {
    destination: parseCidr("172.20.0.0/16"),
    gateway: parseIp("192.168.123.9"),
    interface: "eth0",
  };
  await both.guest.configure({ ...config, routes: [...config.routes, more] }, never);
  const shown = (): (string | undefined)[] =>
    both.peer.state.routes.filter(({ connected }) => !connected).map(({ dest }) => dest);
  t.deepEqual(shown(), ["default", "172.20.0.0/16"]);
  await both.guest.configure(config, never);
  t.deepEqual(shown(), ["default"]);
  await both.guest.configure({ ...config, routes: [] }, never);
  t.deepEqual(shown(), []);
  // This podnetd knows nothing of a route that it has not sent itself: the route stays until the
  // interface is changed.
  await both.guest.close();
  const again = both.reopen();
  await again.configure({ ...config, routes: [...config.routes, more] }, never);
  await again.close();
  await both.reopen().configure(config, never);
  t.deepEqual(shown(), ["default", "172.20.0.0/16"]);
});

test("an ACK for a route the kernel refused is found out", async (t) => {
  await using both = await pair();
  const routes = [
    { destination: parseCidr("10.0.0.0/8"), gateway: parseIp("172.16.0.1"), interface: "eth0" },
  ];
  const error = await t.throwsAsync(both.guest.configure({ ...config, routes }, never), {
    code: "AGENT_REFUSED",
  });
  t.regex(error?.message ?? "", /route 10\.0\.0\.0\/8 via 172\.16\.0\.1 is missing/);
  t.is(both.peer.state.gone, undefined);
});

test("400 routes go out in chunks of at most 512 bytes, each waiting for NEXT", async (t) => {
  await using both = await pair({ readMs: 1 });
  const routes = Array.from({ length: 400 }, (_, i) => ({
    destination: parseCidr(`10.${i >> 8}.${i & 255}.0/24`),
    gateway: parseIp("192.168.123.1"),
    interface: "eth0",
  }));
  const observed = await both.guest.configure({ ...config, routes }, never);
  t.is(observed.routes.filter((route) => route.gateway !== undefined).length, 400);
  t.true(Math.max(...both.peer.arrivals) <= 512);
  t.true(both.peer.mostUnread <= 512);
});

test("a new daemon finds a guest whose pod is started, and does not start it twice", async (t) => {
  await using both = await pair();
  await both.guest.configure(config, never);
  await both.guest.close();
  const again = both.reopen();
  t.is((await again.ready(never)).extension, undefined);
  await again.configure(config, never);
  t.is(both.commands().filter((name) => name === "startPod").length, 1);
  t.is(both.peer.state.gone, undefined);
});

for (const onRecord of [true, false])
  test(`a guest that has lost lo gets it back and no second STARTPOD, ${onRecord ? "by the record" : "by its files"}`, async (t) => {
    await using both = await pair();
    await both.guest.configure(config, never);
    await outcome(await both.guest.exec(request("ip", "link", "set", "lo", "down"), never));
    t.like(both.peer.state.links[0], { name: "lo", up: false });
    await both.guest.close();
    await both.reopen(onRecord).configure(config, never);
    t.is(both.commands().filter((name) => name === "startPod").length, 1);
    t.like(both.peer.state, { gone: undefined });
    t.like(both.peer.state.links[0], { name: "lo", up: true });
  });

test("of a guest on record that shows nothing of its pod any more STARTPOD is not asked", async (t) => {
  // hyperstart's own image may have no cat, and its files may have been removed: the record alone
  // knows.
  await using both = await pair({ ready: false });
  await both.guest.close();
  await both.reopen(true).configure(config, never);
  t.deepEqual(
    both.commands().filter((name) => name === "startPod"),
    [],
  );
  t.like(both.peer.state.links[0], { name: "lo", up: true });
});

test("a guest on record that says READY has booted anew, and gets its STARTPOD", async (t) => {
  await using both = await pair({ bootMs: 300 });
  await both.guest.close();
  await both.reopen(true).configure(config, never);
  t.is(both.commands().filter((name) => name === "startPod").length, 1);
  t.like(both.peer.state, { hostname: "pod-one" });
});

test("hyperstart's own image, which links few applets of its busybox: all is asked of busybox", async (t) => {
  await using both = await pair({ applets: "few", clockBehindMs: 3_600_000 });
  const plain = await outcome(await both.guest.exec(request("ip", "addr"), never));
  t.is(plain[2], 127, "control: there is no ip by its name");
  const observed = await both.guest.configure({ ...config, clockMs: Date.now() }, never);
  t.like(observed.interfaces, [{ name: "eth0", mac, up: true, addresses: ["192.168.123.2/24"] }]);
  t.true(observed.routes.some((route) => route.gateway === "192.168.123.1"));
  t.like(observed, { hostname: "pod-one", dns: { servers: ["8.8.8.8"] } });
  const [eth0] = config.interfaces;
  const changed = { ...(eth0 as NonNullable<typeof eth0>), mtu: 1300 };
  await both.guest.configure({ ...config, interfaces: [changed], routes: [] }, never);
  t.like(both.peer.state.links[1], { mtu: 1300 });
  await both.guest.close();
  const asked = both.peer.state.processes.length;
  await both.reopen(true).configure({ ...config, interfaces: [changed] }, never);
  t.is(both.commands().filter((name) => name === "startPod").length, 1);
  const failed = both.peer.state.processes.slice(asked).filter(({ status }) => status === 127);
  t.is(failed.filter(({ args }) => args[0] === "ip").length, 1, "it is remembered");
});

test("the clock of a guest that was paused is set", async (t) => {
  for (const behindMs of [3_600_000, -3_600_000]) {
    await using both = await pair({ clockBehindMs: behindMs });
    const observed = await both.guest.configure({ ...config, clockMs: Date.now() }, never);
    t.true(Math.abs(both.peer.state.clockBehindMs) < 60_000, `${both.peer.state.clockBehindMs}`);
    t.true(Math.abs(observed.clockMs - Date.now()) < 60_000);
  }
});

test("a name that the kernel refuses is noticed before routes are sent, and the routes come back", async (t) => {
  await using both = await pair({ keepsNames: true });
  await both.guest.configure(config, never);
  const [eth0] = config.interfaces;
  const renamed = { ...(eth0 as NonNullable<typeof eth0>), name: "net0", mtu: 1300 };
  const routes = config.routes.map((route) => ({ ...route, interface: "net0" }));
  const error = await t.throwsAsync(
    both.guest.configure({ ...config, interfaces: [renamed], routes }, never),
    { code: "AGENT_REFUSED" },
  );
  t.regex(error?.message ?? "", /eth0 is not named net0/);
  const sent = both.peer.received.filter(({ code }) => code === command.setupRoute);
  t.false(
    sent.some(({ payload }) => payload.includes("net0")),
    "no route to a device that is not there",
  );
  t.deepEqual(
    both.peer.state.routes.filter(({ connected }) => !connected),
    [{ dest: "default", gateway: "192.168.123.1", device: "eth0", connected: false }],
  );
});

test("a guest of a template says no READY, and has no pod yet", async (t) => {
  await using both = await pair({ ready: false });
  await both.guest.configure(config, never);
  t.is(both.commands().filter((name) => name === "startPod").length, 1);
});

test("processes: outputs, exit, a program that is not there", async (t) => {
  await using both = await pair();
  const run = async (...args: string[]) => outcome(await both.guest.exec(request(...args), never));
  t.deepEqual(await run("sh", "-c", "echo out; echo err >&2; exit 3"), ["out\n", "err\n", 3]);
  t.is((await run("no-such-program"))[2], 127);
  t.deepEqual(
    (await Promise.all(Array.from({ length: 10 }, (_, i) => run("echo", `${i}`)))).map(([o]) => o),
    Array.from({ length: 10 }, (_, i) => `${i}\n`),
  );
});

test("input arrives whole, though its buffer holds 512 bytes and drops the rest", async (t) => {
  await using both = await pair();
  const session = await both.guest.exec(request("wc", "-c"), never);
  const ended = outcome(session);
  for (let i = 0; i < 10; i++) await session.write(new Uint8Array(1000));
  await session.closeInput();
  t.deepEqual(await ended, ["10000\n", "", 0]);
  t.is(both.peer.state.processes.at(-1)?.lostInput, 0);
});

test("56 KiB of input arrive though the program reads none of it for a while; more is refused", async (t) => {
  await using both = await pair();
  const late = request("sh", "-c", "sleep 0.5; wc -c");
  const whole = await both.guest.exec(late, never);
  const ended = outcome(whole);
  for (let left = 57_344; left > 0; left -= 1001)
    await whole.write(new Uint8Array(Math.min(left, 1001)));
  await whole.closeInput();
  t.deepEqual(await ended, ["57344\n", "", 0]);
  t.is(both.peer.state.processes.at(-1)?.lostInput, 0);

  const stop = new AbortController();
  const more = await both.guest.exec(late, stop.signal);
  const over = outcome(more);
  await t.throwsAsync(more.write(new Uint8Array(100_000)), {
    code: "UNSUPPORTED",
    message: /at most 57344 bytes/,
  });
  t.is(both.peer.state.processes.at(-1)?.lostInput, 0);
  stop.abort();
  await t.throwsAsync(over);
});

test("a signal ends a process, a terminal has a size", async (t) => {
  await using both = await pair();
  const session = await both.guest.exec(
    { ...request("sleep", "100"), terminal: true, rows: 30, columns: 90 },
    never,
  );
  t.deepEqual(both.peer.state.processes.at(-1)?.size, [30, 90]);
  await session.signal(15);
  t.is((await outcome(session))[2], 143);
});

test("powerOff ends the guest", async (t) => {
  await using both = await pair();
  const closed = new Promise((resolve) => both.guest.onClose(resolve));
  await both.guest.powerOff(never);
  t.is(await both.peer.exited, "powered off");
  await closed;
});
