import test from "ava";
import type { Cidr, Ip } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/command.ts";
import { nftablesGeneration } from "../../linux/nftables-generation.ts";
import { changesText } from "../../network/change.ts";
import type { PodFragment, PublishedDesired } from "../../network/desired.ts";
import { type HostNetwork, openHostNetwork } from "../../network/ensure.ts";
import { nothingKnown } from "../../network/sweep.ts";
import { ownNetns } from "../lab/netns.ts";
import { networkFragment, podIdOf } from "../lab/network.ts";

const { signal } = new AbortController();

test.beforeEach(async () => {
  await ownNetns();
});

const nft = async (command: string): Promise<string> =>
  (await run(["nft", ...command.split(" ")])).stdout;

const open = (): HostNetwork =>
  openHostNetwork({ firewall: "nftables", iptables: "auto", chain: "HYPER", hostSeed: "seed" });

const published = (hostPort: number, more: Partial<PublishedDesired> = {}): PublishedDesired => ({
  protocol: "tcp",
  hostPort,
  podIp: "192.168.123.2" as Ip,
  podPort: 80,
  count: 1,
  bridge: "hyper0" as IfName,
  subnet: "192.168.123.0/24" as Cidr,
  ...more,
});

/** A pod without links: what it has published is all there is of it. */
const pod = (n: number, ...list: readonly PublishedDesired[]): PodFragment => ({
  kind: "pod",
  key: podIdOf(n),
  ports: [],
  published: list,
});

test.serial(
  "a network, a pod and its ports are made once, and taken away without a trace",
  async (t) => {
    await using host = open();
    const before = await nft("list ruleset");
    await host.ensure(networkFragment(), signal);
    await host.ensure(pod(1, published(8080)), signal);
    t.regex(
      await nft("list map inet podnet everywhere4"),
      /tcp . 8080 comment "podnet:pod:\w+" : 192\.168\.123\.2 \. 80/,
    );
    const made = nftablesGeneration();
    t.deepEqual(await host.ensure(networkFragment(), signal), []);
    t.deepEqual(await host.ensure(pod(1, published(8080)), signal), []);
    // Nor has another one, that has made nothing itself, anything to do.
    await using later = open();
    t.deepEqual(await later.ensure(pod(1, published(8080)), signal), []);
    t.deepEqual(await later.ensure(networkFragment(), signal), []);
    t.is(nftablesGeneration(), made);
    t.deepEqual(changesText(await later.ensure(pod(1), signal)), [
      "nftables delete element inet podnet everywhere4 { 6 . 8080 }",
      "nftables delete element inet podnet opened4 { 6 . 192.168.123.2 . 80 }",
    ]);
    await later.down(signal);
    t.is(await nft("list ruleset"), before);
  },
);

test.serial("what has no row is swept", async (t) => {
  await using first = open();
  await first.ensure(networkFragment(), signal);
  await first.ensure(pod(1, published(8080)), signal);
  await first.ensure(pod(2, published(8081)), signal);
  await using later = open();
  const known = { pods: new Set([podIdOf(2)]), networks: new Set(["default"]) };
  await later.sweep(known, signal);
  const rules = await nft("list table inet podnet");
  t.notRegex(rules, /8080/);
  t.regex(rules, /8081/);
  await later.sweep(nothingKnown, signal);
  t.is(await nft("list tables"), "");
});
