import test from "ava";
import type { Cidr, Ip, IpPrefix } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { nftablesGeneration } from "../../linux/nftables/nftables-generation.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import type { PodFragment, PublishedDesired } from "../../network/model/desired.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import { nothingKnown } from "../../network/bridge/sweep.ts";
import { called as calledDuring } from "../lab/called.ts";
import { ownNetns } from "../lab/netns.ts";
import { networkFragment, podIdOf, publishedPort } from "../lab/network.ts";

const { signal } = new AbortController();

test.beforeEach(async () => {
  await ownNetns();
});

const nft = async (command: string): Promise<string> =>
  (await run(["nft", ...command.split(" ")])).stdout;

/** Commands of nft's language, as an administrator would give them. */
const administrator = async (commands: string): Promise<void> => {
  await run(["nft", "-f", "-"], { stdin: commands });
};

const open = (): HostNetwork =>
  openHostNetwork({ firewall: "nftables", iptables: "auto", chain: "HYPER", hostSeed: "seed" });

const published = (hostPort: number, more: Partial<PublishedDesired> = {}): PublishedDesired =>
  publishedPort({ hostPort, ...more });

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
    await host.apply(networkFragment(), signal);
    await host.apply(pod(1, published(8080)), signal);
    t.regex(
      await nft("list map inet podnet everywhere4"),
      /tcp . 8080 comment "podnet:pod:\w+" : 192\.168\.123\.2 \. 80/,
    );
    const made = nftablesGeneration();
    t.deepEqual(await host.apply(networkFragment(), signal), []);
    t.deepEqual(await host.apply(pod(1, published(8080)), signal), []);
    // Nor has another one, that has made nothing itself, anything to do.
    await using later = open();
    t.deepEqual(await later.apply(pod(1, published(8080)), signal), []);
    t.deepEqual(await later.apply(networkFragment(), signal), []);
    t.is(nftablesGeneration(), made);
    t.deepEqual(changesText(await later.apply(pod(1), signal)), [
      "nftables delete element inet podnet everywhere4 { 6 . 8080 }",
      "nftables delete element inet podnet opened4 { 6 . 192.168.123.2 . 80 }",
    ]);
    await later.remove({ kind: "everything" }, signal);
    t.is(await nft("list ruleset"), before);
  },
);

test.serial("what has no row is swept", async (t) => {
  await using first = open();
  await first.apply(networkFragment(), signal);
  await first.apply(pod(1, published(8080)), signal);
  await first.apply(pod(2, published(8081)), signal);
  await using later = open();
  const known = { pods: new Set([podIdOf(2)]), networks: new Set(["default"]) };
  await later.remove({ kind: "orphans", known }, signal);
  const rules = await nft("list table inet podnet");
  t.notRegex(rules, /8080/);
  t.regex(rules, /8081/);
  await later.remove({ kind: "orphans", known: nothingKnown }, signal);
  t.is(await nft("list tables"), "");
});

/** What is called of nftables while something is done. */
const called = (work: () => Promise<unknown>): Promise<string[]> =>
  calledDuring(work, ({ what }) => /^nftables (?!generation)/.test(what));

const thousand = (): PodFragment =>
  pod(9, published(20_000, { count: 1000, podIp: "192.168.123.9" as Ip, podPort: 20_000 }));

test.serial(
  "a port costs one transaction of the same length, whatever others there are",
  async (t) => {
    await using host = open();
    await host.apply(networkFragment(), signal);
    const cost = async (): Promise<readonly string[]> => {
      const calls: string[] = [];
      const ensure = (fragment: PodFragment) => async (): Promise<void> => {
        const changes = await host.apply(fragment, signal);
        calls.push(changesText(changes).join("\n"));
      };
      calls.push(...(await called(ensure(pod(1, published(8080))))));
      calls.push(...(await called(ensure(pod(1)))));
      return calls;
    };
    const alone = await cost();
    t.deepEqual(
      alone.filter((call) => !call.includes("element inet")),
      ["nftables add elements", "nftables remove elements"],
    );
    await host.apply(thousand(), signal);
    t.deepEqual(await cost(), alone);
    // Nor is the table listed when others have changed anything: what is asked about is.
    await administrator("add table inet theirs");
    const calls = await called(() => host.apply(pod(1, published(8080)), signal));
    t.deepEqual(new Set(calls), new Set(["nftables get element", "nftables add elements"]));
    await administrator("delete table inet theirs");
    t.deepEqual(await called(() => host.apply(pod(1, published(8080)), signal)), [
      "nftables get element",
      "nftables get element",
    ]);
    t.deepEqual(await called(() => host.apply(pod(1, published(8080)), signal)), []);
  },
);

test.serial("a port that another program translates is refused and left alone", async (t) => {
  await using host = open();
  await host.apply(networkFragment(), signal);
  await administrator("add element inet podnet everywhere4 { tcp . 8080 : 10.0.0.1 . 80 }");
  const before = await nft("list ruleset");
  const error = await t.throwsAsync(host.apply(pod(1, published(8080)), signal), {
    code: "PORT_IN_USE",
  });
  t.regex(
    error?.message ?? "",
    /8080\/tcp is translated to 10\.0\.0\.1 port 80 by .* another program/,
  );
  await host.apply(pod(2, published(8081)), signal);
  await t.throwsAsync(host.apply(pod(1, published(8081)), signal), {
    message: new RegExp(`8081/tcp .* podnet:pod:${podIdOf(2)}`),
  });
  await host.remove(pod(2, published(8081)), signal);
  t.is(await nft("list ruleset"), before);
  // Control: the port is all that was in the way.
  await host.apply(pod(1, published(8081)), signal);
});

test.serial("a table of our name that is another's is refused and left alone", async (t) => {
  await administrator("add table inet podnet\nadd chain inet podnet theirs");
  const before = await nft("list ruleset");
  await using host = open();
  await t.throwsAsync(host.apply(networkFragment(), signal), { code: "CHAIN_CONFLICT" });
  await t.throwsAsync(host.apply(pod(1, published(8080)), signal), { code: "CHAIN_CONFLICT" });
  await host.remove({ kind: "everything" }, signal);
  t.is(await nft("list ruleset"), before);
  // One without anything in it as well, unless podnet remembers making it.
  await administrator("delete chain inet podnet theirs");
  await t.throwsAsync(host.apply(networkFragment(), signal), { code: "CHAIN_CONFLICT" });
  await administrator("delete table inet podnet");
  await host.apply(networkFragment(), signal);
  await administrator("delete table inet podnet\nadd table inet podnet");
  await host.apply(networkFragment(), signal);
  t.regex(await nft("list table inet podnet"), /oifname @bridges jump arriving/);
});

test.serial("others' tables are the same, byte for byte, during all of it and after", async (t) => {
  await administrator(`table inet theirs {
  comment "podnet: not a mark"
  set bridges { type ifname; elements = { "hyper0" comment "podnet:network:default" } }
  chain forward { type filter hook forward priority 0; policy accept; oifname @bridges counter drop; }
}
table ip podnet {
  chain postrouting { type nat hook postrouting priority 100; ip saddr 10.0.0.0/8 masquerade; }
}
`);
  const before = await nft("list ruleset");
  await using host = open();
  await host.apply(networkFragment(), signal);
  await host.apply(thousand(), signal);
  await administrator("delete table inet podnet");
  await host.apply(networkFragment(), signal);
  t.true((await nft("list ruleset")).startsWith(before));
  await host.remove({ kind: "everything" }, signal);
  t.is(await nft("list ruleset"), before);
});

const harm: Readonly<Record<string, string>> = {
  "the table is deleted": "delete table inet podnet",
  "every chain is emptied": "flush table inet podnet",
  "a chain is deleted": "flush chain inet podnet forward\ndelete chain inet podnet forward",
  "an element is deleted": "delete element inet podnet everywhere4 { tcp . 8080 }",
  "an element leads elsewhere":
    'delete element inet podnet everywhere4 { tcp . 8080 }\nadd element inet podnet everywhere4 { tcp . 8080 comment "podnet:pod:POD" : 10.0.0.1 . 1 }',
  "a set is emptied": "flush set inet podnet bridges",
  "a rule is added": "insert rule inet podnet forward accept",
  "a policy is another": "chain inet podnet forward { policy drop; }",
  "a chain begins elsewhere":
    "flush chain inet podnet forward\ndelete chain inet podnet forward\nadd chain inet podnet forward { type filter hook input priority 5; }",
  "a set is of another kind":
    "flush chain inet podnet forward\ndelete set inet podnet bridges\nadd set inet podnet bridges { type mark; }",
};

for (const [what, commands] of Object.entries(harm))
  test.serial(`drift: ${what}`, async (t) => {
    await using host = open();
    const fragments = [networkFragment(), pod(1, published(8080))];
    for (const fragment of fragments) await host.apply(fragment, signal);
    // What it looks like is known from the second look on.
    await administrator("add table inet theirs");
    for (const fragment of fragments) t.deepEqual(await host.diff(fragment, signal), []);
    // (What is made again is listed last.)
    const shown = async (): Promise<string[]> =>
      (await nft("-s list table inet podnet")).split("\n").toSorted();
    const healthy = await shown();
    const clean = await host.observe.fingerprint([networkFragment()], signal);
    await administrator(commands.replace("POD", podIdOf(1)));
    t.not(await host.observe.fingerprint([networkFragment()], signal), clean);
    const heal = { heal: () => true, linksOnly: false };
    const inspections = [];
    for (const fragment of fragments)
      inspections.push(await host.inspect(() => fragment, heal, signal));
    t.true(inspections.some(({ found }) => found.length > 0));
    t.true(inspections.every(({ healed, error }) => healed && error === undefined));
    t.deepEqual(await shown(), healthy);
    for (const fragment of fragments) t.deepEqual(await host.apply(fragment, signal), []);
  });

test.serial("drift: a rule says something else under its comment", async (t) => {
  await using host = open();
  await host.apply(networkFragment(), signal);
  await administrator("add table inet theirs");
  t.deepEqual(await host.diff(networkFragment(), signal), []);
  const [, comment, handle] =
    /drop comment "(\S+)" # handle (\d+)/.exec(await nft("-a list chain inet podnet arriving")) ??
    [];
  await administrator(
    `replace rule inet podnet arriving handle ${handle} accept comment "${comment}"`,
  );
  t.true((await host.apply(networkFragment(), signal)).length > 0);
  t.regex(await nft("list chain inet podnet arriving"), /\bdrop comment/);
});

test.serial("a range of 4096 ports is one transaction, and taken away in one", async (t) => {
  await using host = open();
  await host.apply(networkFragment(), signal);
  const range = pod(1, published(20_000, { count: 4096, podPort: 30_000 }));
  t.deepEqual(await called(() => host.apply(range, signal)), ["nftables add elements"]);
  const map = await nft("list map inet podnet everywhere4");
  t.regex(map, /tcp \. 24095 .* : 192\.168\.123\.2 \. 34095/);
  t.notRegex(map, /24096/);
  // As many are not asked for one by one.
  await administrator("add table inet theirs");
  t.deepEqual(await called(() => host.apply(range, signal)), ["nftables list table"]);
  t.deepEqual(await called(() => host.remove(range, signal)), ["nftables remove elements"]);
  t.notRegex(await nft("list table inet podnet"), /192\.168\.123\.2 /);
});

test.serial(
  "networks that overlap, as one may force them to, have their own elements",
  async (t) => {
    await using host = open();
    const other = networkFragment({ key: "other", bridge: "other0" as IfName });
    const wider = networkFragment({
      key: "wider",
      bridge: "wider0" as IfName,
      gateways: ["192.168.0.1/16" as IpPrefix],
      masquerade: ["192.168.0.0/16" as Cidr],
    });
    const all = [networkFragment(), other, wider];
    const links = { heal: () => true, linksOnly: false };
    for (const fragment of all) {
      // (The links of two cannot be made here: an address is one link's.)
      await host.inspect(() => ({ ...fragment, gateways: [] }), links, signal);
    }
    const shown = await nft("list set inet podnet masqueraded4");
    for (const { bridge, masquerade } of all)
      t.true(shown.includes(`${masquerade[0]} . "${bridge}"`));
  },
);
