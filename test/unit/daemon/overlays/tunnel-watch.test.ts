import test from "ava";
import type { Cidr, Ipv4 } from "../../../../core/address.ts";
import { ReachReport } from "../../../../daemon/overlays/probes/reach-report.ts";
import {
  TunnelWatch,
  type TunnelWatchOptions,
} from "../../../../daemon/overlays/probes/tunnel-watch.ts";
import type { EchoAnswer } from "../../../../linux/sockets/echo-socket.ts";
import type { LogFields } from "../../../../linux/log.ts";
import type { Peer } from "../../../../overlay/peers.ts";

const peer = (n: number): Peer => ({
  key: `k${n}`,
  subnets: { v4: `10.77.${n}.0/24` as Cidr, v6: undefined },
  publicIp: `192.0.2.${n}` as Ipv4,
  publicIp6: undefined,
  attributes: { type: "host-gw" },
  reserved: false,
});

/** A network between hosts, and what the watch has said of it. */
class Between {
  carries = 1450;
  damages = false;
  silent = new Set<string>();
  readonly warnings: string[] = [];
  readonly details: string[] = [];
  damage = 0;
  compared = 0;
  #heard: (() => void) | undefined;

  readonly options = (txChecksum: "auto" | "on" | "off"): TunnelWatchOptions => ({
    settings: { probeMs: 60_000, txChecksum },
    reportAfterMs: 1,
    log: {
      debug: (_, msg) => void this.details.push(msg),
      info: (_, msg) => this.#say(msg),
      warn: (_, msg) => this.#say(msg),
    },
    onDamage: () => {
      this.damage++;
      this.#heard?.();
    },
    ask: (address, { bytes = 0 }): Promise<EchoAnswer> =>
      Promise.resolve(
        this.silent.has(address) || bytes > this.carries
          ? { kind: "silent" }
          : { kind: "answered", rttMs: 1 },
      ),
    askRefusal: (_, { checksum }) => {
      this.compared++;
      this.#heard?.();
      return Promise.resolve(!(checksum && this.damages));
    },
  });

  async until(done: () => boolean): Promise<void> {
    while (!done())
      await new Promise<void>((resolve) => {
        this.#heard = resolve;
        setImmediate(resolve);
      });
  }

  #say(message: string): void {
    this.warnings.push(message);
    this.#heard?.();
  }
}

test("a tunnel that carries what it promises is not reported, and its peers are reachable", async (t) => {
  const between = new Between();
  using watch = new TunnelWatch(between.options("auto"));
  watch.follow({ backend: "vxlan", mtu: 1450, peers: [peer(2), peer(3)] });
  // The last of what is tried.
  await between.until(() => watch.counts.reachable === 2 && between.compared === 1);
  await new Promise((resolve) => setImmediate(resolve));
  t.true(watch.of("k2")?.reachable);
  // The next trial comes to nothing else, for all that was found out.
  between.damages = true;
  between.carries = 1400;
  watch.follow({ backend: "vxlan", mtu: 1450, peers: [peer(2), peer(3)] });
  t.deepEqual([watch.troubles, between.warnings, between.damage], [[], [], 0]);
});

test("an underlay that is too narrow is warned of once, until another MTU fits", async (t) => {
  const between = new Between();
  between.carries = 1400;
  using watch = new TunnelWatch(between.options("auto"));
  watch.follow({ backend: "host-gw", mtu: 1450, peers: [peer(2)] });
  await between.until(() => watch.troubles.length > 0);
  t.deepEqual(watch.troubles, ["Packets of 1450 bytes do not reach other hosts, those of 1400 do"]);
  t.is(between.warnings.length, 1);
  watch.follow({ backend: "host-gw", mtu: 1400, peers: [peer(2)] });
  t.deepEqual(watch.troubles, []);
});

test("damaged checksums turn the card's part off by themselves, or are warned of where that is forbidden", async (t) => {
  for (const [txChecksum, damage, troubles] of [
    ["auto", 1, 0],
    ["on", 0, 1],
  ] as const) {
    const between = new Between();
    between.damages = true;
    using watch = new TunnelWatch(between.options(txChecksum));
    watch.follow({ backend: "vxlan", mtu: 1450, peers: [peer(2)] });
    await between.until(() => between.warnings.length > 0);
    t.deepEqual([between.damage, watch.troubles.length], [damage, troubles], txChecksum);
    t.deepEqual(between.warnings, [
      "Checksums that the tunnel leaves to the network card arrive damaged",
    ]);
  }
});

test("a peer that cannot be reached is warned of, and when it can be it is tried", async (t) => {
  const between = new Between();
  between.silent = new Set(["10.77.2.1"]);
  using watch = new TunnelWatch({
    ...between.options("off"),
    settings: { probeMs: 5, txChecksum: "off" },
  });
  const alive = setInterval(() => {}, 1000);
  t.teardown(() => clearInterval(alive));
  watch.follow({ backend: "host-gw", mtu: 1450, peers: [peer(2)] });
  await between.until(() => between.warnings.length === 1);
  t.deepEqual(watch.of("k2"), { reachable: false });
  between.carries = 1300;
  between.silent.clear();
  await between.until(() => between.warnings.length === 3);
  t.is(between.warnings[0], "1 of 1 other hosts of the overlay cannot be reached");
  t.true(between.warnings.includes("All hosts of the overlay can be reached again"));
  t.is(watch.troubles.length, 1);
});

test("a thousand peers that are lost or come back together are one line in the log, and none without a change", async (t) => {
  const lines: (readonly [string, LogFields])[] = [];
  const waits: (() => void)[] = [];
  const say = (fields: LogFields, msg: string): void => {
    lines.push([msg, fields]);
    for (const done of waits.splice(0)) done();
  };
  let unreachable = 0;
  using reach = new ReachReport({
    log: { info: say, warn: say },
    reach: () => ({ reachable: 1000 - unreachable, unreachable, lost: ["k1", "k2"] }),
    afterMs: 1,
  });
  const alive = setInterval(() => {}, 1000);
  t.teardown(() => clearInterval(alive));
  const next = async (lost: number): Promise<unknown> => {
    for (let n = 0; n < 1000; n++) reach.changed();
    unreachable = lost;
    await new Promise<void>((resolve) => waits.push(resolve));
    return lines.splice(0);
  };
  const some = (n: number): string => `${n} of 1000 other hosts of the overlay cannot be reached`;
  const fields = { hosts: 1000, peers: ["k1", "k2"] };
  t.deepEqual(await next(997), [[some(997), { ...fields, unreachable: 997 }]]);
  // One is lost and one comes back: nothing is logged, but the next change is.
  reach.changed();
  await new Promise((resolve) => setTimeout(resolve, 20));
  t.deepEqual(lines, []);
  t.deepEqual(await next(3), [[some(3), { ...fields, unreachable: 3 }]]);
  t.deepEqual(await next(0), [["All hosts of the overlay can be reached again", { hosts: 1000 }]]);
});

test("with probes off no peer is asked", (t) => {
  const between = new Between();
  using watch = new TunnelWatch({
    ...between.options("auto"),
    settings: { probeMs: 0, txChecksum: "auto" },
    ask: () => t.fail(),
  });
  watch.follow({ backend: "vxlan", mtu: 1450, peers: [peer(2)] });
  t.is(watch.of("k2"), undefined);
});
