import test from "ava";
import type { Cidr, Ip, Ipv4, Ipv6 } from "../../../../core/address.ts";
import { probeTargets } from "../../../../daemon/overlays/probes/probe-targets.ts";
import { Prober } from "../../../../daemon/overlays/probes/prober.ts";
import { probeChecksum, probePath } from "../../../../daemon/overlays/probes/tunnel-probes.ts";
import type { EchoAnswer } from "../../../../linux/sockets/echo-socket.ts";

const { signal } = new AbortController();
const ip = (text: string): Ip => text as Ip;
const answered = (rttMs: number): EchoAnswer => ({ kind: "answered", rttMs });
const silent: EchoAnswer = { kind: "silent" };

/** Peers that answer on command. */
class Asked {
  readonly addresses: string[] = [];
  readonly #answers: ((answer: EchoAnswer) => void)[] = [];

  readonly ask = (address: Ip): Promise<EchoAnswer> => {
    this.addresses.push(address);
    return new Promise((resolve) => this.#answers.push(resolve));
  };

  /** The first that waits is answered, and what follows from it has happened. */
  async answer(answer: EchoAnswer): Promise<void> {
    this.#answers.shift()?.(answer);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const targets = (...numbers: number[]): Map<string, Ip[]> =>
  new Map(numbers.map((n) => [`k${n}`, [ip(`10.77.${n}.0`), ip(`10.77.${n}.1`)]]));

test("a peer is asked through the overlay, where there is a way through it", (t) => {
  const peer = {
    subnets: { v4: "10.77.5.0/24" as Cidr, v6: "fd00:5::/64" as Cidr },
    publicIp: "192.0.2.5" as Ipv4,
    publicIp6: "2001:db8::5" as Ipv6,
  };
  t.deepEqual(probeTargets(peer, "vxlan"), ["10.77.5.0", "10.77.5.1"] as never);
  t.deepEqual(probeTargets(peer, "udp"), ["10.77.5.0", "10.77.5.1"] as never);
  t.deepEqual(probeTargets(peer, "host-gw"), ["10.77.5.1"] as never);
  t.deepEqual(probeTargets(peer, "alloc"), ["192.0.2.5"] as never);
  const six = { ...peer, subnets: { v4: undefined, v6: "fd00:5::/64" as Cidr } };
  t.deepEqual(probeTargets(six, "vxlan"), ["fd00:5::", "fd00:5::1"] as never);
  t.deepEqual(probeTargets(six, "alloc"), ["2001:db8::5"] as never);
  t.deepEqual(probeTargets({ ...six, publicIp6: undefined }, "alloc"), []);
});

test("a peer that says from its public address that it has no way on is there; another that says so is not it", async (t) => {
  const asked = new Asked();
  using prober = new Prober({ ask: asked.ask, periodMs: 60_000 });
  const hosts = new Map([
    ["k1", [ip("192.0.2.1")]],
    ["k2", [ip("192.0.2.2")]],
  ]);
  prober.follow(
    new Map([
      ["k1", [ip("10.77.1.1")]],
      ["k2", [ip("10.77.2.1")]],
    ]),
    hosts,
  );
  await asked.answer({ kind: "unreachable", from: ip("192.0.2.1"), rttMs: 2 });
  t.deepEqual(prober.of("k1"), { reachable: true, rttMs: 2 });
  // A router on the way to the second, say.
  await asked.answer({ kind: "unreachable", from: ip("192.0.2.1"), rttMs: 2 });
  t.deepEqual(prober.of("k2"), { reachable: false });
  t.is(prober.reached, undefined, "nothing is tried out on what has not answered");
});

test("so many peers are asked at once and no more, and all of them in the end", async (t) => {
  const asked = new Asked();
  using prober = new Prober({ ask: asked.ask, periodMs: 60_000, atOnce: 2 });
  prober.follow(targets(1, 2, 3));
  t.deepEqual(asked.addresses, ["10.77.1.0", "10.77.2.0"]);
  t.is(prober.of("k1"), undefined);
  await asked.answer(answered(3));
  t.deepEqual(prober.of("k1"), { reachable: true, rttMs: 3, address: ip("10.77.1.0") });
  t.deepEqual(asked.addresses.slice(2), ["10.77.3.0"]);
  // One that is silent at its base is asked at its bridge; then it is not to be reached.
  await asked.answer(silent);
  t.deepEqual(asked.addresses.slice(3), ["10.77.2.1"]);
  t.is(prober.of("k2"), undefined);
  await asked.answer(answered(1));
  await asked.answer({ kind: "unsent", errno: "ENETUNREACH" });
  t.deepEqual(prober.of("k2"), { reachable: false });
  t.deepEqual(prober.of("k3"), { reachable: true, rttMs: 1, address: ip("10.77.3.0") });
  t.deepEqual(prober.counts, { reachable: 2, unreachable: 1 });
});

test("a peer that has moved is asked anew, one that has gone is forgotten, and answers of before count for nothing", async (t) => {
  const asked = new Asked();
  const changes: (readonly [string, boolean])[] = [];
  using prober = new Prober({
    ask: asked.ask,
    periodMs: 60_000,
    onChange: (key, now) => void changes.push([key, now.reachable]),
  });
  prober.follow(targets(1, 2));
  await asked.answer(answered(1));
  await asked.answer(answered(1));
  t.deepEqual(changes.splice(0), [
    ["k1", true],
    ["k2", true],
  ]);
  prober.follow(new Map([["k1", [ip("10.77.9.0")]]]));
  t.is(prober.of("k1"), undefined);
  t.is(prober.of("k2"), undefined);
  t.deepEqual(prober.counts, { reachable: 0, unreachable: 0 });
  prober.follow(new Map([["k1", [ip("10.77.8.0")]]]));
  await asked.answer(answered(7));
  t.is(prober.of("k1"), undefined, "that was of another address");
  prober.follow(new Map());
  prober.follow(new Map([["k1", [ip("10.77.8.0")]]]));
  await asked.answer(silent);
  t.deepEqual(changes, [["k1", false]]);
});

test("every peer is asked again after the period, and a change of it is reported once", async (t) => {
  const answers: EchoAnswer[] = [answered(1), silent, silent, answered(2), answered(2)];
  const changes: boolean[] = [];
  const done = Promise.withResolvers<void>();
  // What waits for the next period does not keep the process alive.
  const alive = setInterval(() => {}, 1000);
  t.teardown(() => clearInterval(alive));
  using _prober = (() => {
    const prober = new Prober({
      ask: () => {
        const next = answers.shift();
        if (answers.length === 0) done.resolve();
        return Promise.resolve(next ?? silent);
      },
      periodMs: 5,
      onChange: (_, { reachable }) => void changes.push(reachable),
    });
    prober.follow(new Map([["k", [ip("10.77.1.0")]]]));
    return prober;
  })();
  await done.promise;
  t.deepEqual(changes.slice(0, 3), [true, false, true]);
});

test("a period of 0 asks no peer", (t) => {
  const asked = new Asked();
  using prober = new Prober({ ask: asked.ask, periodMs: 0 });
  prober.follow(targets(1));
  t.deepEqual(asked.addresses, []);
});

const path = (limit: number, lost: (bytes: number, nth: number) => boolean = () => false) => {
  let nth = 0;
  return probePath(
    (_, { bytes = 0 }) =>
      Promise.resolve(bytes > limit || lost(bytes, nth++) ? silent : answered(1)),
    ip("10.77.2.0"),
    { mtu: 1450, timeoutMs: 1 },
  );
};

test("how long packets may be that reach a peer is found to the byte, whatever single ones are lost", async (t) => {
  t.deepEqual(await path(1450), { kind: "whole" });
  t.deepEqual(await path(9000), { kind: "whole" });
  for (const limit of [576, 1000, 1399, 1449])
    t.deepEqual(await path(limit), { kind: "less", carries: limit });
  t.deepEqual(await path(0), { kind: "unknown" });
  t.deepEqual(await path(1450, (_, nth) => nth % 2 === 0), { kind: "whole" });
  t.deepEqual(
    await probePath(
      (_, { bytes = 0 }) =>
        Promise.resolve(bytes > 1300 ? { kind: "too-big", mtu: 1300 } : answered(1)),
      ip("fd00::1"),
      { mtu: 1430, timeoutMs: 1 },
    ),
    { kind: "less", carries: 1300 },
  );
});

test("checksums are damaged where datagrams without them arrive, and those with them do not", async (t) => {
  const probe = (arrives: (checksum: boolean, nth: number) => boolean) => {
    let nth = 0;
    return probeChecksum(
      (_, { checksum, port }) => {
        t.true(port >= 49_152 && port <= 65_535);
        return Promise.resolve(arrives(checksum, nth++));
      },
      ip("10.77.2.0"),
      { timeoutMs: 1, signal },
    );
  };
  t.is(await probe(() => true), "sound");
  t.is(await probe((_, nth) => nth === 2), "sound", "two are lost for other reasons");
  t.is(await probe((checksum) => !checksum), "damaged");
  t.is(await probe(() => false), "unknown");
  const ending = new AbortController();
  const asked: boolean[] = [];
  const ended = await probeChecksum(
    (_, { checksum }) => {
      asked.push(checksum);
      ending.abort();
      return Promise.resolve(false);
    },
    ip("10.77.2.0"),
    { timeoutMs: 1, signal: ending.signal },
  );
  t.is(ended, "unknown");
  t.deepEqual(asked, [true]);
});
