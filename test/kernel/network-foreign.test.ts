import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { readSysctl } from "../../linux/sysctl.ts";
import { openTap, type Tap } from "../../linux/tun.ts";
import type { NetworkFragment, PodFragment } from "../../network/model/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import type { Remembered } from "../../network/kernel/memory.ts";
import { podMark } from "../../network/model/ownership.ts";
import { Random, runSeed } from "../fuzz/engine/random.ts";
import { foreignText, makeForeign, ownRules, type Run } from "../lab/foreign.ts";
import { ownNetns } from "../lab/netns.ts";
import { difference, networkFragment, podIdOf } from "../lab/network.ts";

const never = new AbortController().signal;
const full = process.env["PODNET_TEST_FULL"] === "1";
const operations = full ? 1000 : 120;
const inside: Run = async (...argv) => (await run(argv)).stdout;

test.before(ownNetns);

/** A pod of the model: its taps are held here, as its machine would. */
interface Pod {
  readonly fragment: PodFragment;
  readonly taps: Tap[];
}

const hex = (n: number): string => (n % 256).toString(16).padStart(2, "0");

class Model {
  host: HostNetwork;
  readonly pods = new Map<string, Pod>();
  readonly network: NetworkFragment = networkFragment();
  readonly #variant: "nft" | "legacy";
  readonly #random: (below: number) => number;
  /** The host forwarded before: whoever switches that off changes what is not podnet's. */
  readonly #forwards = readSysctl("net.ipv4.ip_forward") === "1";
  #remembered: Remembered | undefined;
  #made = 0;

  constructor(variant: "nft" | "legacy", random: (below: number) => number) {
    this.#variant = variant;
    this.#random = random;
    this.host = this.open();
  }

  open(): HostNetwork {
    return openHostNetwork({
      iptables: this.#variant,
      chain: "HYPER",
      remembered: this.#remembered,
      remember: (value) => (this.#remembered = value),
    });
  }

  async create(): Promise<void> {
    const n = ++this.#made;
    const key = podIdOf(n);
    const taps: Tap[] = [];
    const ports = Array.from({ length: 1 + this.#random(2) }, (_, i) => {
      const tap = `our${n}${i}` as IfName;
      taps.push(openTap(tap));
      const guestAddresses = [`192.168.123.${2 + ((n + i) % 250)}/24` as never];
      const alias = podMark(key, i);
      return {
        tap,
        bridge: "hyper0" as IfName,
        guestMac: `52:54:00:00:${hex(n)}:0${i}` as never,
        guestAddresses,
        alias,
        isolated: this.#random(4) === 0,
        mtu: 1500,
      };
    });
    const fragment: PodFragment = { kind: "pod", key, ports };
    this.pods.set(key, { fragment, taps });
    await this.host.apply(fragment, never);
  }

  async delete(): Promise<void> {
    const pod = this.#any();
    if (pod === undefined) return;
    this.pods.delete(pod.fragment.key);
    await this.host.remove({ kind: "ports", pod: pod.fragment.key }, never);
    // A machine ends before or after what the host keeps of it is cleared.
    if (this.#random(2) === 0) await this.host.remove(pod.fragment, never);
    for (const tap of pod.taps) await tap.close();
    await this.host.remove(pod.fragment, never);
  }

  async replug(): Promise<void> {
    const pod = this.#any();
    if (pod === undefined) return;
    await this.host.remove({ kind: "ports", pod: pod.fragment.key }, never);
    await this.host.apply(pod.fragment, never);
  }

  /** Another program harms what is ours, and it is repaired. */
  async harm(): Promise<void> {
    const harms = [
      "ip link del hyper0",
      "ip link set hyper0 down",
      "ip link set hyper0 mtu 1400",
      "ip addr del 192.168.123.1/24 dev hyper0",
      ...(this.#forwards ? [] : ["sysctl -q -w net.ipv4.ip_forward=0"]),
      `iptables-${this.#variant} -D FORWARD -o hyper0 -m comment --comment podnet:network:default -j HYPER`,
      `iptables-${this.#variant} -t nat -F HYPER`,
    ];
    const command = harms[this.#random(harms.length)] ?? "";
    await run(command.split(" ") as [string, ...string[]]);
    const options = { heal: () => true, linksOnly: false };
    for (const fragment of [this.network, ...[...this.pods.values()].map((pod) => pod.fragment)]) {
      const { error } = await this.host.inspect(() => fragment, options, never);
      if (error !== undefined) throw error;
    }
  }

  /** A podnetd ends, gently or not, and the next takes over; pods may have gone meanwhile. */
  async restart(): Promise<void> {
    await this.host[Symbol.asyncDispose]();
    const lost = this.#random(3) === 0 ? this.#any() : undefined;
    if (lost !== undefined) this.pods.delete(lost.fragment.key);
    this.host = this.open();
    await this.host.apply(this.network, never);
    for (const { fragment } of this.pods.values()) await this.host.apply(fragment, never);
    await this.host.remove(
      {
        kind: "orphans",
        known: { pods: new Set(this.pods.keys()), networks: new Set(["default"]) },
      },
      never,
    );
    for (const tap of lost?.taps ?? []) await tap.close();
  }

  async down(): Promise<void> {
    await this.host.remove({ kind: "everything" }, never);
    const pods = [...this.pods.values()];
    this.pods.clear();
    for (const tap of pods.flatMap(({ taps }) => taps)) await tap.close();
  }

  #any(): Pod | undefined {
    return [...this.pods.values()][this.#random(Math.max(1, this.pods.size))];
  }
}

/** Waits until carriers and IPv6 have done what follows from links coming up. */
async function converged(): Promise<void> {
  let calm = 0;
  for (let last = ""; calm < 4; ) {
    const now = await foreignText(inside, true);
    calm = now === last ? calm + 1 : 0;
    last = now;
    await delay(250);
  }
}

test.serial("what the kernel changes along with ip_forward is put back with it", async (t) => {
  const set = (...settings: readonly string[]): Promise<string> =>
    inside("sysctl", "-q", "-w", ...settings);
  await inside("ip", "link", "add", "side0", "type", "veth", "peer", "name", "side1");
  await set("net.ipv4.ip_forward=0");
  await set("net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.side0.forwarding=1");
  const settings = (): Promise<string> =>
    inside(
      "sysctl",
      "-a",
      "-r",
      String.raw`^net\.ipv4\.(ip_forward|conf\.(all|default|lo|side.)\.)`,
    );
  const before = await settings();
  let remembered: Remembered | undefined;
  const open = (): HostNetwork =>
    openHostNetwork({
      iptables: "nft",
      chain: "HYPER",
      remembered,
      remember: (value) => (remembered = value),
    });
  const first = open();
  await first.apply(networkFragment(), never);
  t.is(readSysctl("net.ipv4.ip_forward"), "1");
  await first[Symbol.asyncDispose]();
  const second = open();
  await second.remove({ kind: "everything" }, never);
  await second[Symbol.asyncDispose]();
  t.deepEqual(difference(before, await settings()), []);
  await inside("ip", "link", "del", "side0");
});

test.serial(
  `what is not podnet's is the same after ${operations} operations and after down, and its own rules are there once`,
  async (t) => {
    t.timeout(full ? 3_600_000 : 280_000);
    const seed = runSeed();
    t.log(`PODNET_SEED=${seed}`);
    const dice = new Random(seed);
    const random = (below: number): number => dice.below(below);
    await makeForeign(inside, random);
    await converged();
    const atFirst = await foreignText(inside, true);
    const foreign = await foreignText(inside, false);
    const model = new Model(random(2) === 0 ? "nft" : "legacy", random);
    await model.host.apply(model.network, never);
    const planned = await ownRules(inside);
    t.is(planned.filter((line) => line.endsWith("-j HYPER")).length, 3, planned.join("\n"));
    const trail: string[] = [];
    for (let i = 1; i <= operations; i++) {
      const kinds = [
        "create",
        "create",
        "create",
        "delete",
        "delete",
        "replug",
        "harm",
        "restart",
      ] as const;
      const kind = random(60) === 0 ? "down" : (kinds[random(kinds.length)] ?? "create");
      trail.push(kind);
      await model[kind]();
      if (kind === "down") {
        t.deepEqual(
          difference(atFirst, await foreignText(inside, true)),
          [],
          `seed ${seed}, down at ${i}`,
        );
        await model.host.apply(model.network, never);
      }
      if (kind === "restart" || kind === "harm")
        t.deepEqual(await ownRules(inside), planned, `seed ${seed}, ${kind} at ${i}`);
      if (i % 25 === 0) {
        const now = await foreignText(inside, false);
        t.deepEqual(difference(foreign, now), [], `seed ${seed}, ${trail.slice(-25).join()}`);
      }
    }
    await model.down();
    t.is(await foreignText(inside, true), atFirst, `seed ${seed}`);
    t.deepEqual(await ownRules(inside), []);
    await model.host[Symbol.asyncDispose]();
  },
);
