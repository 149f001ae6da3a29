import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import type { Readable } from "node:stream";
import test from "ava";
import { run } from "../../linux/processes/command.ts";
import { overlayChangeText } from "../../network/overlay/change.ts";
import type { OverlayDesired } from "../../network/model/overlay.ts";
import type { Counters } from "../../network/overlay/udp/counters.ts";
import { until } from "../lab/until.ts";
import {
  followDelta,
  hostAddress,
  openOverlayHosts,
  type OverlayHost,
  overlayOf,
  podAddress,
} from "../lab/overlay.ts";

const { signal } = new AbortController();
const top = path.resolve(import.meta.dirname, "../..");
const node = path.join(top, "scripts/node");
const echo = path.join(top, "test/peers/echo-stream.ts");
const backend = { kind: "udp", port: 8285 } as const;
const udpOf = (n: number, peers?: readonly number[]): OverlayDesired =>
  overlayOf(n, { backend, ...(peers === undefined ? {} : { peers }) });

const changesOf = async (host: OverlayHost, desired: OverlayDesired): Promise<readonly string[]> =>
  (await host.overlays.ensure(desired, signal)).changes.map(overlayChangeText);

const pair = async (): Promise<
  AsyncDisposableStack & { readonly hosts: readonly [OverlayHost, OverlayHost] }
> => (await openOverlayHosts(2)) as never;

/** However busy the machine is. */
const reached = (host: OverlayHost, address: string): Promise<true> =>
  until(`an answer of ${address}`, () => host.reaches(address));

/** What ping says when its packet has too few hops. */
const lastHop = (host: OverlayHost, hops: number): Promise<string> =>
  host.pod(`ping -n -c 1 -W 1 -t ${hops} ${podAddress(2)}`).then(
    () => "an answer",
    ({ stdout }: { readonly stdout: string }) => stdout,
  );

const countersOf = (host: OverlayHost): Counters => {
  const tunnel = host.overlays.tunnels.get("default");
  if (tunnel === undefined) throw new Error("It has no tunnel");
  return tunnel.counters;
};

const links = (host: OverlayHost): Promise<string> => host.run("ip -br link");

test.serial(
  "pods of two hosts reach each other by datagrams of podnetd's, as by flannel's",
  async (t) => {
    await using lab = await pair();
    const [first, second] = lab.hosts;
    t.false(await first.reaches(podAddress(2)), "nothing leads there yet");
    t.deepEqual(await changesOf(first, udpOf(1, [2])), [
      "tunnel + default at 192.0.2.1:8285",
      "link ~ flannel0 mtu 1472 group 73 alias podnet:overlay:default",
      "address + 10.77.1.0/32 on flannel0",
      "link ~ flannel0 up",
      "peer + 10.77.2.0/24 at 192.0.2.2",
      "route + 10.77.0.0/16 dev flannel0",
    ]);
    const made = await second.overlays.ensure(udpOf(2, [1]), signal);
    t.deepEqual([made.failures, made.refused, made.mtu], [[], [], 1472]);
    t.deepEqual(await changesOf(first, udpOf(1, [2])), [], "twice is once");
    await reached(first, podAddress(2));
    await reached(second, podAddress(1));
    // Each host counts a hop, and each end of the tunnel.
    t.regex(await first.pod(`ping -n -c 1 -W 5 ${podAddress(2)}`), /ttl=60 /);
    t.regex(await first.pod(`ping -n -c 1 -W 5 -t 5 ${podAddress(2)}`), /ttl=60 /);
    // The last hop of a host is notified of by its kernel; those at the tunnel's ends are not.
    t.regex(await lastHop(first, 4), /Time to live exceeded/);
    t.is(countersOf(second).expired, 0);
    t.notRegex(await lastHop(first, 3), /Time to live/);
    await until("it to be counted", () => countersOf(second).expired === 1);
    // What fits goes whole.
    t.regex(await first.pod(`ping -n -c 1 -W 5 -M do -s 1444 ${podAddress(2)}`), /1452 bytes from/);
    await t.throwsAsync(first.pod(`ping -n -c 1 -W 1 -M do -s 1445 ${podAddress(2)}`));
    await until("them to be counted", () => countersOf(first).receivedPackets >= 4);
    t.like(countersOf(first), { malformed: 0, unroutable: 0, lost: 0, undelivered: 0 });
  },
);

test.serial("packets for no address are answered, and what is no packet is counted", async (t) => {
  await using lab = await pair();
  const [first, second] = lab.hosts;
  await first.overlays.ensure(udpOf(1, [2]), signal);
  await second.overlays.ensure(udpOf(2, [1]), signal);
  await reached(first, podAddress(2));
  const connecting = (address: string): Promise<string> =>
    first.pod(`${node} ${echo} ask ${address} 5001 1`);
  const refused = await t.throwsAsync(connecting("10.77.9.2"));
  t.regex(refused?.message ?? "", /ENETUNREACH/);
  await until("a count", () => countersOf(first).unroutable > 0);
  // Datagrams that no tunnel sends: empty, short, IPv6, cut off.
  const { malformed } = countersOf(first);
  const hostile = ["", "E", "`".repeat(60), `E${"\u0000".repeat(40)}`];
  const script = `const s = require("node:dgram").createSocket("udp4"); for (const d of ${JSON.stringify(hostile)}) s.send(d, 8285, "${hostAddress(1)}"); setTimeout(() => s.close(), 200)`;
  await run(["ip", "netns", "exec", second.name, node, "-e", script]);
  await until(
    "each to be counted",
    () => countersOf(first).malformed === malformed + hostile.length,
  );
  await reached(first, podAddress(2));
});

test.serial(
  "a broken tunnel is made again, a peer that goes is let go, and nothing is left",
  async (t) => {
    await using lab = await pair();
    const [first, second] = lab.hosts;
    await first.overlays.ensure(udpOf(1, [2]), signal);
    await second.overlays.ensure(udpOf(2, [1]), signal);
    await reached(first, podAddress(2));
    const ended = Promise.withResolvers<string>();
    first.overlays.tunnels.onEnd = (overlay, reason) => ended.resolve(`${overlay}: ${reason}`);
    await first.run("ip link delete flannel0");
    t.is(await ended.promise, "default: EBADFD");
    // A delta of peers does not hide it.
    const { changes } = await followDelta(first, udpOf(1, [2]), udpOf(1, [2]), signal);
    t.is(changes.map(overlayChangeText)[0], "tunnel - default on flannel0");
    await reached(first, podAddress(2));
    t.deepEqual(
      (await followDelta(first, udpOf(1, [2]), udpOf(1, []), signal)).changes.map(
        overlayChangeText,
      ),
      ["peer - 10.77.2.0/24"],
    );
    t.false(await first.reaches(podAddress(2)));
    await followDelta(first, udpOf(1, []), udpOf(1, [2]), signal);
    await reached(first, podAddress(2));
    // Another port is another tunnel; another backend is none.
    const elsewhere = overlayOf(1, { backend: { kind: "udp", port: 8286 }, peers: [2] });
    t.is((await changesOf(first, elsewhere))[1], "tunnel + default at 192.0.2.1:8286");
    t.false(await first.reaches(podAddress(2)));
    await first.overlays.ensure(overlayOf(1, { peers: [2] }), signal);
    t.notRegex(await links(first), /flannel0/);
    await first.overlays.ensure(udpOf(1, [2]), signal);
    t.notRegex(await links(first), /flannel\.1/);
    await reached(first, podAddress(2));
    await first.overlays.sweep([], signal);
    t.notRegex(await links(first), /flannel/);
    t.is(await first.run("ip route show proto 73"), "");
  },
);

/** What the pod of one host sends to the other's, and gets back from it, is what it sent. */
async function passesWhole(host: OverlayHost, mib = 8): Promise<string> {
  const server = ["ip", "netns", "exec", `pod2-${process.pid}`, node, echo, "serve", "5001"];
  await using serving = started(server);
  await once(serving.child.stdout as Readable, "data");
  return await host.pod(`${node} ${echo} ask ${podAddress(2)} 5001 ${mib}`);
}

function started([program = "", ...words]: readonly string[]): AsyncDisposable & {
  readonly child: ChildProcess;
} {
  const child = spawn(program, words, { stdio: ["ignore", "pipe", "inherit"] });
  return {
    child,
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGKILL");
        await once(child, "exit");
      }
    },
  };
}

test.serial("streams pass whole, many packets at a time", async (t) => {
  await using lab = await pair();
  const [first, second] = lab.hosts;
  await first.overlays.ensure(udpOf(1, [2]), signal);
  await second.overlays.ensure(udpOf(2, [1]), signal);
  t.is(await passesWhole(first), "same\n");
  // Each datagram is one packet that fits.
  await until("them to be counted", () => countersOf(first).sentPackets > 5000);
  // Where the way carries less than the link does, the kernel takes none of many at a time: each
  // goes by itself, in parts.
  await first.run(`ip route add ${hostAddress(2)}/32 dev eth0 mtu 1000`);
  t.is(await passesWhole(first, 1), "same\n");
  t.is(countersOf(first).lost, 0);
});

test.serial("a peer of flannel's kind, a packet at a time, is served as well", async (t) => {
  await using lab = await pair();
  const [first, second] = lab.hosts;
  await first.overlays.ensure(udpOf(1, [2]), signal);
  await using loop = started(await udpLoop(second));
  await once(loop.child.stdout as Readable, "data");
  await second.run("ip addr add 10.77.2.0/32 dev flannel0");
  await second.run("ip link set flannel0 mtu 1472 up");
  await second.run("ip route add 10.77.0.0/16 dev flannel0");
  t.regex(await first.pod(`ping -n -c 1 -W 5 ${podAddress(2)}`), /ttl=60 /);
  t.is(await passesWhole(first), "same\n");
});

/** Builds flannel's method in C, and answers how it is started. */
async function udpLoop(host: OverlayHost): Promise<readonly string[]> {
  const program = `/tmp/udp-loop-${process.pid}`;
  await run(["gcc", "-O2", path.join(top, "test/peers/udp-loop.c"), "-o", program]);
  const peer = ["10.77.1.0", "24", hostAddress(1)];
  return [
    "ip",
    "netns",
    "exec",
    host.name,
    program,
    "flannel0",
    hostAddress(2),
    "8285",
    "10.77.2.0",
    ...peer,
  ];
}
