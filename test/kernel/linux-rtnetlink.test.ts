import { readdirSync } from "node:fs";
import test from "ava";
import { parseCidr, parseIp, parseIpPrefix } from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import { RtnetlinkExchange } from "../../linux/netlink/rtnetlink-exchange.ts";
import { type RtnetlinkWatch, watchRtnetlink } from "../../linux/netlink/rtnetlink-events.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { withNetns } from "../../linux/namespaces/netns.ts";
import type { RtnetlinkEvent } from "../../linux/rtnetlink/event.ts";
import {
  changeLink,
  deleteLink,
  getLinks,
  newBridge,
} from "../../linux/rtnetlink/links/link-requests.ts";
import { ownNetns } from "../lab/netns.ts";

let net: Rtnetlink;

// Test files share the sandbox's /run, hence a name of this process's own.
const otherNetns = `other-${process.pid}`;

test.before(async () => {
  await ownNetns();
  net = Rtnetlink.open();
});
test.after.always(() => net.close());
test.afterEach.always(async () => {
  await net.deleteGroup(99);
  for (const { name } of await net.links()) if (name !== "lo") await net.deleteLink(name);
});

/** 1,000 links of group 99, `n0`… and `f0`…. */
async function thousandLinks(): Promise<void> {
  for (let i = 0; i < 500; i++)
    await net.addVeth({ name: `n${i}`, group: 99, peer: { name: `f${i}`, group: 99 } });
}

test.serial("a list of 1,000 links is whole while another program changes it", async (t) => {
  await thousandLinks();
  const links = await net.links({ group: 99 });
  t.is(new Set(links.map(({ name }) => name)).size, 1000);
  // Another process makes links all the while, again and again until the kernel has cut a list
  // short.
  const raw = new RtnetlinkExchange();
  let interrupted = 0;
  let rounds = 0;
  while (interrupted === 0 && rounds < 8) {
    const commands = Array.from(
      { length: 400 },
      (_, i) => `link add name x${rounds}-${i} type bridge\n`,
    );
    const state = { running: true };
    const changing = run(["ip", "-batch", "-"], { stdin: commands.join("") }).finally(() => {
      state.running = false;
    });
    while (state.running) {
      const [answer] = raw.exchange([getLinks()]);
      if (answer?.interrupted === true) interrupted++;
      const stable = (await net.links()).filter(({ group }) => group === 99);
      t.is(new Set(stable.map(({ name }) => name)).size, 1000);
      t.is(stable.length, 1000);
      await new Promise(setImmediate);
    }
    await changing;
    rounds++;
  }
  raw.close();
  t.true(interrupted > 0, "the kernel did flag lists that changed half way");
  t.is((await net.links({ kind: "bridge" })).length, 400 * rounds);
  const group = (await net.links({ kind: "bridge" })).map(({ index }) =>
    changeLink(index, { group: 99 }),
  );
  await net.batch(group);
});

test.serial("calls at the same time get each its own answer", async (t) => {
  await thousandLinks();
  const bridge = await net.addBridge({ name: "hyper0" });
  const removed = ["n0", "n1", "n2"];
  const results = await Promise.all([
    net.links({ group: 99 }),
    net.link("hyper0"),
    ...removed.map((name) => net.deleteLink(name)),
    net.links({ kind: "bridge" }),
    net.changeLink(bridge.index, { alias: "podnet:x" }),
    t.throwsAsync(net.changeLink(bridge.index, { mtu: 1 }), { message: /mtu less/ }),
    net.addresses(),
    net.link("none"),
    net.deleteLink("none"),
    net.link("hyper0"),
  ]);
  t.like(results[1], { name: "hyper0" });
  t.deepEqual(results.slice(2, 5), [true, true, true]);
  t.like(results[5], [{ name: "hyper0" }]);
  t.is(results[9], undefined);
  t.is(results[10], false);
  t.false(await net.leaveBridge("none"));
  t.is((await net.links({ group: 99 })).length, 994);
  t.is((await net.link("hyper0"))?.alias, "podnet:x");
});

test.serial("a batch does all it can and reports each outcome", async (t) => {
  const outcomes = await net.tryBatch([
    newBridge({ name: "a" }),
    newBridge({ name: "a" }),
    newBridge({ name: "b" }),
    changeLink("none", { up: true }),
  ]);
  t.deepEqual(
    outcomes.map((outcome) => outcome?.details["errno"]),
    [undefined, "EEXIST", undefined, "ENODEV"],
  );
  const many = Array.from({ length: 1000 }, (_, i) => changeLink("a", { alias: `turn ${i}` }));
  await net.batch(many);
  t.is((await net.link("a"))?.alias, "turn 999");
  const error = await t.throwsAsync(net.batch([deleteLink("none"), newBridge({ name: "a" })]), {
    message: 'Cannot delete "none": ENODEV',
  });
  t.like(error, { details: { failed: 2 } });
  await net.batch([deleteLink("a"), deleteLink("b")]);
  t.deepEqual(
    (await net.links()).map(({ name }) => name),
    ["lo"],
  );
});

test.serial("who asks for nothing gets nothing", async (t) => {
  t.deepEqual(await net.linksNamed([]), []);
  t.is((await net.linksNamed(["lo"])).length, 1);
  await net.tryBatch([]);
});

test.serial("a socket stays in the namespace it was opened in", async (t) => {
  await run(["ip", "netns", "add", otherNetns]);
  t.teardown(() => run(["ip", "netns", "del", otherNetns]));
  using there = withNetns(`/run/netns/${otherNetns}`, () => Rtnetlink.open());
  await there.addBridge({ name: "there0" });
  t.is(await net.link("there0"), undefined);
  t.is((await there.links()).length, 2);
  t.true(await there.deleteLink("there0"), "slow requests too");
});

test.serial("a closed socket finishes what is under way and takes no more", async (t) => {
  await net.addBridge({ name: "hyper0" });
  const other = Rtnetlink.open();
  const deleting = other.deleteLink("hyper0");
  other.close();
  other.close();
  t.true(await deleting);
  await t.throwsAsync(other.links(), { code: "INTERNAL" });
  await t.throwsAsync(other.deleteLink("hyper0"), { code: "INTERNAL" });
});

test.serial("sockets do not pile up", async (t) => {
  const before = readdirSync("/proc/self/fd").length;
  for (let i = 0; i < 20; i++) {
    using other = Rtnetlink.open();
    await other.links();
    watchRtnetlink({ groups: ["link"] }, t.log, t.log).close();
  }
  await new Promise(setImmediate);
  t.is(readdirSync("/proc/self/fd").length, before);
});

test.serial("what cannot be opened leaves nothing open", async (t) => {
  // Another process, whose few descriptors this can use up.
  const script = `
    import { closeSync, openSync } from "node:fs";
    import { Rtnetlink } from "./linux/netlink/rtnetlink-socket.ts";
    const room = () => {
      const open = [];
      try { for (;;) open.push(openSync("/dev/null", "r")); } catch {}
      return open;
    };
    const held = room();
    held.splice(0, 2).forEach((fd) => closeSync(fd));
    try { Rtnetlink.open(); } catch (error) { console.log(error.details.errno, room().length); }`;
  const argv = ["prlimit", "--nofile=64:64", process.execPath, "--input-type=module"] as const;
  const { stdout } = await run([...argv, "-e", script]);
  t.is(stdout, "EMFILE 2\n");
});

// Links that are down change without an event, hence `up: true` below.
/** Collects events and lets a test wait for one. */
class Collector {
  readonly events: RtnetlinkEvent[] = [];
  resyncs = 0;
  readonly watch: RtnetlinkWatch;
  #wake = Promise.withResolvers<void>();

  constructor(options: Parameters<typeof watchRtnetlink>[0]) {
    this.watch = watchRtnetlink(
      options,
      (event) => {
        this.events.push(event);
        this.#next();
      },
      () => {
        this.resyncs++;
        this.#next();
      },
    );
  }

  #next(): void {
    this.#wake.resolve();
    this.#wake = Promise.withResolvers();
  }

  /** Waits until it is so, or does not come to be. */
  async until(done: () => boolean): Promise<void> {
    const limit = AbortSignal.timeout(20_000);
    // A watch does not keep the process alive; this does while we wait.
    const alive = setInterval(() => this.#next(), 100);
    while (!done() && !limit.aborted) await this.#wake.promise;
    clearInterval(alive);
  }
}

test.serial("changes of every kind are reported, in order", async (t) => {
  const seen = new Collector({
    groups: ["link", "neighbour", "address4", "address6", "route4", "route6"],
  });
  t.teardown(() => seen.watch.close());
  const text = (event: RtnetlinkEvent): string => {
    if (event.kind === "traffic-control") return event.kind;
    const { kind, gone, ...rest } = event;
    const what = Object.values(rest)[0] as Record<string, unknown>;
    const id = what["name"] ?? what["prefix"] ?? what["destination"] ?? what["mac"];
    return `${gone ? "-" : "+"}${kind} ${String(id)}`;
  };
  const { index } = await net.addBridge({ name: "hyper0", up: true });
  await net.addVeth({ name: "va", peer: { name: "vb" } });
  await net.changeLink("va", { master: index, up: true });
  await net.changeLink("vb", { up: true });
  await net.addAddress(index, parseIpPrefix("192.168.123.1/24"));
  await net.addAddress(index, parseIpPrefix("fd00::1/64"), { noDad: true });
  // IPv6 reports an address when its own work queue gets round to it.
  await seen.until(() => seen.events.some((event) => text(event) === "+address fd00::1/64"));
  const destination = parseCidr("10.1.0.0/16");
  await net.addRoute({ destination, gateway: parseIp("192.168.123.7"), protocol: 73 });
  await net.deleteRoute({ destination });
  await net.changeLink("va", { master: 0 });
  await net.deleteLink("hyper0");
  await seen.until(() => seen.events.some((event) => text(event) === "-link hyper0"));
  const order = [
    "+link hyper0",
    "+link va",
    "+port va",
    "+address 192.168.123.1/24",
    "+route 10.1.0.0/16",
    "-route 10.1.0.0/16",
    "-port va",
    "-address 192.168.123.1/24",
    "-link hyper0",
  ];
  const reported = seen.events.map(text);
  t.deepEqual(
    reported.filter((line, i) => order.includes(line) && reported.indexOf(line) === i),
    order,
  );
  t.true(reported.some((line) => line.startsWith("+fdb")));
  t.is(seen.resyncs, 0);
});

test.serial(
  "too many events at once are counted, followed by a resync, and the watch goes on",
  async (t) => {
    const seen = new Collector({ groups: ["link"], receiveBuffer: 16_384 });
    t.teardown(() => seen.watch.close());
    await net.addBridge({ name: "hyper0", up: true });
    // The changes run without a break, so nothing is read meanwhile and the small buffer overflows.
    for (let i = 0; i < 600; i++) await net.changeLink("hyper0", { alias: `turn ${i}` });
    await seen.until(() => seen.resyncs > 0);
    t.is(seen.resyncs, 1);
    t.is(seen.watch.losses, 1);
    t.true(seen.events.length > 0 && seen.events.length < 600);
    const kept = seen.events.length;
    t.is((await net.link("hyper0"))?.alias, "turn 599", "what a resync lists");

    await net.changeLink("hyper0", { alias: "afterwards" });
    await seen.until(() => seen.events.length > kept);
    t.like(seen.events.at(-1), { kind: "link", link: { alias: "afterwards" } });

    for (let i = 0; i < 600; i++) await net.changeLink("hyper0", { alias: `again ${i}` });
    await seen.until(() => seen.resyncs > 1);
    t.is(seen.watch.losses, 2);
  },
);

test.serial("the usual buffer holds a storm of 3,000 events", async (t) => {
  const seen = new Collector({ groups: ["link"] });
  t.teardown(() => seen.watch.close());
  await net.addBridge({ name: "hyper0", up: true });
  for (let i = 0; i < 3000; i++) await net.changeLink("hyper0", { alias: `turn ${i}` });
  await seen.until(() => {
    const last = seen.events.at(-1);
    return last?.kind === "link" && last.link.alias === "turn 2999";
  });
  t.is(seen.watch.losses, 0);
});

test.serial("a closed watch reports nothing more, even from within its listener", async (t) => {
  const reported: RtnetlinkEvent[] = [];
  const watch = watchRtnetlink(
    { groups: ["link"] },
    (event) => {
      reported.push(event);
      watch.close();
    },
    () => {},
  );
  await net.addBridge({ name: "hyper0", up: true });
  await net.changeLink("hyper0", { alias: "x" });
  while (reported.length === 0) await new Promise(setImmediate);
  await net.changeLink("hyper0", { alias: "y" });
  await new Promise(setImmediate);
  t.is(reported.length, 1);
});

test.serial("a watch closed between a loss and its resync comes to rest", async (t) => {
  let resyncs = 0;
  const watch = watchRtnetlink(
    { groups: ["link"], receiveBuffer: 16_384 },
    () => watch.close(),
    () => resyncs++,
  );
  await net.addBridge({ name: "hyper0", up: true });
  for (let i = 0; i < 600; i++) await net.changeLink("hyper0", { alias: `turn ${i}` });
  while (watch.losses === 0) await new Promise(setImmediate);
  for (let i = 0; i < 3; i++) await new Promise(setImmediate);
  t.false(process.getActiveResourcesInfo().includes("Immediate"));
  t.is(resyncs, 0);
});
