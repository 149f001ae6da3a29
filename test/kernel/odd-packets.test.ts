import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import { encode, streamEncode } from "dns-packet";
import { type Ip, macToBytes, parseIp, parseMac } from "../../core/address.ts";
import { systemClock } from "../../core/clock.ts";
import { parseIfName, type PodId } from "../../core/names.ts";
import { PortAnswers } from "../../daemon/dhcp/port-answers.ts";
import { listenOnLink } from "../../daemon/dns/listen.ts";
import { Resolver, type ResolverCounts, type ResolverParts } from "../../daemon/dns/resolver.ts";
import { Turns } from "../../daemon/dns/turns.ts";
import { HeldPorts } from "../../daemon/published/held-ports.ts";
import type { HolderId } from "../../daemon/store/holder.ts";
import { run } from "../../linux/processes/command.ts";
import { resetConnection } from "../../linux/sockets/reset-connection.ts";
import { PacketStream } from "../../linux/packets/packet-stream.ts";
import { ownNetns } from "../lab/netns.ts";
import { runSeed } from "../fuzz/engine/random.ts";
import { oddFrame, type Oddities } from "../lab/odd-frames.ts";
import { parseSegment, type RawEnd, tcpFrame, udpFrame } from "../lab/raw-frame.ts";
import { Random } from "../sim/random.ts";

// What no program's own sockets send, on a wire whose other end is raw: host0 is as podnetd's
// listeners have it, and what passes guest0 is written and read frame by frame.

const hostMac = parseMac("52:54:00:00:00:01");
const guestMac = parseMac("52:54:00:00:00:02");
const wires = {
  4: { host: parseIp("10.99.0.1"), guest: parseIp("10.99.0.2"), length: 24 },
  6: { host: parseIp("fd00:99::1"), guest: parseIp("fd00:99::2"), length: 64 },
} as const;
const families = [4, 6] as const;
const link = parseIfName("host0");
const wire = new DisposableStack();
let guest: PacketStream;

test.before(async () => {
  await ownNetns();
  const ip = (words: string): Promise<unknown> => run(["ip", ...words.split(" ")]);
  await ip(`link add host0 address ${hostMac} type veth peer guest0 address ${guestMac}`);
  for (const each of ["host0", "guest0"]) await ip(`link set ${each} up`);
  for (const family of families) {
    const { host, guest, length } = wires[family];
    await ip(`address add ${host}/${length} dev host0${family === 6 ? " nodad" : ""}`);
    await ip(`neighbour add ${guest} lladdr ${guestMac} dev host0 nud permanent`);
  }
  guest = wire.use(new PacketStream({ link: parseIfName("guest0"), snapBytes: 2048 }));
});
test.after.always(() => wire.dispose());

const end = (mac: RawEnd["mac"], ip: Ip, port: number): RawEnd => ({ mac, ip, port });

/** Resolves when a frame to the guest holds these bytes. */
async function heard(text: string | Buffer): Promise<void> {
  const limit = AbortSignal.timeout(10_000);
  for (;;) {
    const frames = (await guest.next(64, limit)) ?? [];
    const bytes = frames.map((each) => Buffer.from(each.bytes));
    if (bytes.some((each) => each.indexOf(macToBytes(guestMac)) === 0 && each.includes(text)))
      return;
  }
}

const nothingAsked = (): ResolverCounts => ({
  queries: 0,
  forwarded: 0,
  refused: 0,
  timeouts: 0,
  stale: 0,
});

/** A resolver of one pod's, which knows no name. */
const resolver = (counts: ResolverCounts, turns = new Turns(systemClock)): Resolver =>
  new Resolver({
    counts,
    turns,
    askerAt: () => "aaaaaaaaaaaa" as HolderId,
    zoneOf: () => ({ domain: "podnet", pools: () => [] }),
    upstreams: () => [],
    forwarder: { forward: () => Promise.resolve(undefined) },
  } as unknown as ResolverParts);

for (const family of families)
  test.serial(
    `a question from port 0 is dropped, and the next is answered: IPv${family}`,
    async (t) => {
      const { host, guest: from } = wires[family];
      const counts = nothingAsked();
      const listening = await listenOnLink({ link, addresses: [host] }, resolver(counts));
      t.teardown(() => listening.close());
      const query = encode({ id: 1, questions: [{ name: "odd.example", type: "A" }] });
      for (const port of [0, 4000])
        guest.send(
          udpFrame({ from: end(guestMac, from, port), to: end(hostMac, host, 53) }, query),
        );
      await heard("odd\x07example");
      t.like(counts, { queries: 1, refused: 1 });
    },
  );

const seed = runSeed();
const complete = process.env["PODNET_TEST_FULL"] === "1";
const frames = complete ? 300_000 : 3000;
const podIp = parseIp("127.0.5.5");
const near = parseIp("fe80::1");
const question = encode({ id: 7, questions: [{ name: "odd.example", type: "A" }] });
/** DHCPDISCOVER, as short as may be (RFC 2131). */
const discover = new Uint8Array(244);
discover.set([1, 1, 6, 0, 1, 2, 3, 4]);
discover.set(macToBytes(guestMac), 28);
discover.set([0x63, 0x82, 0x53, 0x63, 53, 1, 1, 255], 236);
const oddities: Oddities = {
  from: {
    4: ["10.99.0.2", "10.99.0.77", "127.0.0.1", "0.0.0.0", "224.0.0.1", "10.99.0.1"].map((text) =>
      parseIp(text),
    ),
    6: ["fd00:99::2", "fe80::2", "::1", "::", "ff02::1", "fd00:99::1"].map((text) => parseIp(text)),
  },
  to: {
    4: ["10.99.0.1", "255.255.255.255", "10.99.0.255", "127.0.0.1"].map((text) => parseIp(text)),
    6: ["fd00:99::1", near, "ff02::1", "ff02::1:2", "::1"].map((text) => parseIp(text)),
  },
  ports: [53, 53, 8080, 5353, 67, 547],
  payloads: [
    question,
    streamEncode({ id: 7, questions: [{ name: "odd.example", type: "A" }] }),
    discover,
  ],
  hostMac,
  guestMac,
};

/**
 * Everything podnetd would have at this link, and at its ports; a question has the same answer
 * however many came before.
 */
async function listeners(t: ExecutionContext): Promise<HeldPorts> {
  await run(["ip", "address", "add", `${near}/64`, "dev", "host0", "nodad"]);
  t.teardown(() => run(["ip", "address", "del", `${near}/64`, "dev", "host0"]));
  const place = { [Symbol.dispose]() {} };
  const patient = { ask: () => true, forward: () => place, connection: () => place };
  const names = await listenOnLink(
    { link, addresses: [wires[4].host, wires[6].host] },
    resolver(nothingAsked(), patient as unknown as Turns),
  );
  t.teardown(() => names.close());
  const answers = new PortAnswers({
    link,
    lease: {
      mac: guestMac,
      mtu: 1500,
      hostname: "odd",
      search: [],
      v4: { address: "10.99.0.2/24" as never, server: wires[4].host, routes: [], dns: [] },
      v6: {
        addresses: ["fd00:99::2/64" as never],
        onLink: [],
        isRouter: false,
        routes: [],
        dns: [],
      },
    },
    router: () => Promise.resolve({ mac: hostMac, linkLocal: near }),
    taken() {},
    ignored() {},
    note() {},
    failed: (error) => t.fail(String(error)),
  });
  t.teardown(() => answers[Symbol.dispose]());
  const held = new HeldPorts();
  t.teardown(() => held[Symbol.dispose]());
  const at = ["0.0.0.0", "::"].map((text) => ({ hostIp: parseIp(text), podIp }));
  await held.hold("dddddddddddd" as PodId, [
    { hostPort: 8080, podPort: 80, count: 1, protocol: "tcp", at },
    { hostPort: 5353, podPort: 53, count: 1, protocol: "udp", at },
  ]);
  return held;
}

/**
 * Begins connections as a guest, and goes on with each that is taken in an odd way: RST, FIN, half
 * a question, silence.
 */
async function oddConnections(random: Random, count: number): Promise<void> {
  const [from, to] = [wires[4].guest, wires[4].host];
  const begun = new Map<number, number>();
  for (let n = 0; n < count; n++) {
    const port = 20_000 + n;
    begun.set(port, random.pick([53, 8080]));
    const packet = { from: end(guestMac, from, port), to: end(hostMac, to, begun.get(port) ?? 0) };
    guest.send(tcpFrame(packet, { flags: 2, sequence: port, acknowledged: 0 }));
    if (random.chance(0.1))
      guest.send(tcpFrame(packet, { flags: 4, sequence: port + 1, acknowledged: 0 }));
  }
  const limit = AbortSignal.timeout(complete ? 5000 : 500);
  for (;;) {
    const heard = await guest.next(64, limit).catch(() => undefined);
    if (heard === undefined) return;
    for (const { bytes } of heard) {
      const taken = parseSegment(bytes);
      if (taken?.flags !== 0x12 || !begun.has(taken.to)) continue;
      const packet = { from: end(guestMac, from, taken.to), to: end(hostMac, to, taken.from) };
      const sequence = taken.to + 1;
      const acknowledged = taken.sequence + 1;
      const ask = Uint8Array.from(oddities.payloads[1] ?? []);
      const payload = random.chance(0.5) ? ask : ask.subarray(0, random.below(ask.length));
      const say = (flags: number, data?: Uint8Array): void =>
        void guest.send(
          tcpFrame(packet, { flags, sequence, acknowledged, ...(data && { payload: data }) }),
        );
      if (random.chance(0.8)) say(0x10);
      if (random.chance(0.6)) say(0x18, payload);
      if (random.chance(0.5)) say(random.pick([0x04, 0x14, 0x11, 0x19, 0x29]), payload);
    }
  }
}

/** Connects by loopback, and ends at odd times; the pod does as well. */
async function oddClients(random: Random, count: number): Promise<void> {
  const odd = (socket: Socket): void => {
    socket.on("error", () => {}).resume();
    const acts = [
      () => resetConnection(socket),
      () => void (socket.writable && socket.end("some")),
      () => void socket.destroy(),
      () => void (socket.writable && socket.write(random.bytes(random.below(4000)))),
    ];
    for (let n = 0; n < 2; n++) setTimeout(random.pick(acts), random.below(5));
    setTimeout(() => resetConnection(socket), 20);
  };
  const pod = createServer({ allowHalfOpen: true }, odd);
  pod.listen(80, podIp);
  await once(pod, "listening");
  const hosts = ["127.0.0.1", "::1", `${near}%host0`, "10.99.0.1"];
  await Promise.all(
    Array.from({ length: count }, async (_, n) => {
      await delay(n / 4);
      const socket = connect({ host: random.pick(hosts), port: 8080, allowHalfOpen: true });
      odd(socket);
      await new Promise<void>((closed, late) => {
        const limit = setTimeout(() => late(new Error("A connection was not closed")), 10_000);
        socket.once("close", () => {
          clearTimeout(limit);
          closed();
        });
      });
    }),
  );
  pod.close();
}

test.serial("odd frames at the listeners: none is an error, and each still answers", async (t) => {
  t.log(`seed ${seed}`);
  const random = new Random(seed);
  const held = await listeners(t);
  for (let n = 0; n < frames; n++) {
    guest.send(oddFrame(random, oddities));
    if (n % 64 === 0) await delay(1);
  }
  await oddConnections(random, complete ? 5000 : 200);
  await oddClients(random, complete ? 5000 : 200);
  while (held.counts().active > 0) await delay(5);
  // Whatever is an error there fails this file. The control: each answers what is in order.
  for (const family of families) {
    const { host, guest: from } = wires[family];
    const packet = { from: end(guestMac, from, 4001), to: end(hostMac, host, 53) };
    const asked = heard("odd\x07example");
    guest.send(udpFrame(packet, question));
    await asked;
  }
  const everybody = end(hostMac, parseIp("255.255.255.255"), 67);
  const offered = heard(Buffer.from([0x63, 0x82, 0x53, 0x63, 53, 1, 2]));
  // Questions that came before are looked at first, so many in a second.
  const again = setInterval(
    () =>
      guest.send(
        udpFrame({ from: end(guestMac, parseIp("0.0.0.0"), 68), to: everybody }, discover),
      ),
    50,
  );
  await offered.finally(() => clearInterval(again));
  const server = createServer((socket) => socket.on("error", () => {}).end("in")).listen(80, podIp);
  const pod = createSocket("udp4").bind(53, podIp);
  const pair = [once(server, "listening"), once(pod, "listening")];
  await Promise.all(pair);
  for (const host of ["127.0.0.1", "::1"]) {
    const [data] = (await once(connect(8080, host), "data")) as [Buffer];
    t.is(String(data), "in");
    const client = createSocket(host === "::1" ? "udp6" : "udp4");
    const arrived = once(pod, "message");
    client.send("in", 5353, host);
    t.is(String((await arrived)[0]), "in");
    client.close();
  }
  pod.close();
  server.close();
});
