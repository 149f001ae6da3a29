import test from "ava";
import type { Cidr, IpPrefix } from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import type { Change } from "../../network/model/change.ts";
import type { NetworkFragment } from "../../network/model/desired.ts";
import {
  diffFirewallRemoval,
  diffNetworkFirewall,
} from "../../network/firewall/iptables/diff-owners.ts";
import { commitTable, observeFirewall } from "../../network/firewall/iptables/firewall.ts";
import { type Variant, variants } from "../../network/model/rules.ts";
import { installedPrograms } from "../../network/kernel/iptables-programs.ts";
import { hostIdentity } from "../../network/kernel/kernel.ts";
import { Memory } from "../../network/kernel/memory.ts";
import { ownNetns } from "../lab/netns.ts";

const { signal } = new AbortController();
const iptables = installedPrograms(4);

const network = (key = "default", chain = "HYPER"): NetworkFragment => ({
  kind: "network",
  key,
  bridge: (key === "default" ? "hyper0" : `br-${key}`) as IfName,
  gateways: ["192.168.123.1/24" as IpPrefix],
  mtu: 1500,
  masquerade: ["192.168.123.0/24" as Cidr],
  firewall: true,
  chain,
  forward: true,
});

const memoryOf = (): Memory => new Memory(hostIdentity());

async function commit(changes: readonly Change[], memory: Memory): Promise<void> {
  for (const change of changes) {
    if (change.kind !== "iptables") continue;
    const { makesChain, variant, table, chain } = change;
    if (makesChain) memory.chains(4).remember(variant, table, chain);
    await commitTable(iptables, change.variant, change, signal);
  }
}

async function ensure(
  fragment: NetworkFragment,
  configured: "auto" | Variant,
  memory = memoryOf(),
): Promise<readonly Change[]> {
  const changes = diffNetworkFirewall(fragment, await observeFirewall(iptables, signal), {
    configured,
    memory: memory.chains(4),
  });
  await commit(changes, memory);
  return changes;
}

async function takeAway(memory = memoryOf(), key?: string): Promise<void> {
  const observed = await observeFirewall(iptables, signal);
  const removed = (owner: { readonly kind: string; readonly key: string }): boolean =>
    owner.kind === "network" && (key === undefined || owner.key === key);
  const context = { configured: "auto", memory: memory.chains(4) } as const;
  await commit(diffFirewallRemoval("HYPER", observed, context, removed), memory);
}

/** All rules of a variant, without the dates in comments. */
const dump = async (variant: Variant): Promise<string> =>
  (await run([`iptables-${variant}-save`])).stdout.replaceAll(/^#.*\n/gm, "");

const foreignPart = (text: string): string =>
  text
    .split("\n")
    .filter((line) => !line.includes("podnet:") && !line.startsWith(":HYPER"))
    .join("\n");

/** Foreign rules, with everything that is awkward to read. */
const foreignRules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OTHERS - [0:0]
-A INPUT -p tcp -m multiport --dports 22,80:90 -m comment --comment "it's \\"quoted\\" \\\\ and -j HYPER" -j ACCEPT
-A FORWARD -i docker0 ! -o docker0 -j OTHERS
-A FORWARD -m comment --comment "podnet: not a mark" -j OTHERS
-A OTHERS ! -s 10.0.0.0/8 -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN
-A OTHERS -m limit --limit 5/min -j LOG --log-prefix "no such \\"luck\\" "
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -p tcp -m addrtype --dst-type LOCAL -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.2:80
-A POSTROUTING -s 192.168.123.0/24 ! -o hyper0 -j MASQUERADE
COMMIT
`;

const seed = (variant: Variant, rules = foreignRules): Promise<unknown> =>
  run([`iptables-${variant}-restore`, "--noflush"], { stdin: rules });

for (const variant of variants) {
  test.serial(
    `${variant}: every rendered commit is taken, a second look finds nothing to do`,
    async (t) => {
      await ownNetns();
      const first = await ensure(network(), variant);
      t.deepEqual(
        first.map((change) => change.kind === "iptables" && `${change.variant} ${change.table}`),
        [`${variant} filter`, `${variant} nat`],
      );
      t.deepEqual(await ensure(network(), variant), []);
      t.deepEqual(await ensure(network(), "auto"), []);
      t.is(
        await dump(variant),
        variant === "nft"
          ? golden
          : `${golden.slice(golden.indexOf("*nat"))}${golden.slice(0, golden.indexOf("*nat"))}`,
      );
    },
  );

  test.serial(
    `${variant}: others' rules stay byte for byte, and after taking away nothing of ours is left`,
    async (t) => {
      await ownNetns();
      await seed(variant);
      const before = await dump(variant);
      t.true(before.includes("DOCKER") || before.includes("OTHERS"));
      await ensure(network(), "auto");
      await ensure(network("blue"), "auto");
      t.is(foreignPart(await dump(variant)), foreignPart(before));
      t.deepEqual(await ensure(network(), "auto"), []);
      t.deepEqual(await ensure(network("blue"), "auto"), []);
      await takeAway(memoryOf(), "default");
      t.regex(await dump(variant), /-j HYPER/);
      t.deepEqual(await ensure(network("blue"), "auto"), []);
      await takeAway();
      t.is(await dump(variant), before);
    },
  );

  test.serial(`${variant}: flushed, doubled and reordered rules are repaired`, async (t) => {
    await ownNetns();
    await seed(variant);
    const memory = memoryOf();
    await ensure(network(), "auto", memory);
    await ensure(network("blue"), "auto", memory);
    const whole = await dump(variant);
    const iptables = `iptables-${variant}`;
    const mark = ["-m", "comment", "--comment", "podnet:network:default"] as const;
    await run([iptables, "-I", "FORWARD", "1", "-i", "hyper0", ...mark, "-j", "ACCEPT"]);
    await run([iptables, "-D", "FORWARD", "-o", "hyper0", ...mark, "-j", "HYPER"]);
    await run([iptables, "-t", "nat", "-F", "HYPER"]);
    t.is((await ensure(network(), "auto", memory)).length, 2);
    t.deepEqual(await ensure(network("blue"), "auto", memory), []);
    t.is(sortLines(await dump(variant)), sortLines(whole));
    await run([iptables, "-F"]);
    await run([iptables, "-t", "nat", "-F"]);
    await ensure(network(), "auto", memory);
    await ensure(network("blue"), "auto", memory);
    t.deepEqual(await ensure(network(), "auto", memory), []);
    const ours = (text: string): string =>
      sortLines(
        text
          .split("\n")
          .filter((line) => line.includes("podnet:n") || line.includes("podnet:c"))
          .join("\n"),
      );
    t.is(ours(await dump(variant)), ours(whole));
  });

  test.serial(`${variant}: a chain that is not ours is refused and left alone`, async (t) => {
    await ownNetns();
    await seed(
      variant,
      "*nat\n:HYPER - [0:0]\n-A HYPER -p tcp -j DNAT --to-destination 10.0.0.2\nCOMMIT\n",
    );
    const before = await dump(variant);
    const error = await t.throwsAsync(() => ensure(network(), "auto"));
    t.true(isPodnetError(error, "CHAIN_CONFLICT"));
    t.is(await dump(variant), before);
    await takeAway();
    t.is(await dump(variant), before);
    // Under another name both live side by side.
    await ensure(network("default", "PODNET"), "auto");
    t.deepEqual(await ensure(network("default", "PODNET"), "auto"), []);
  });
}

test.serial(
  "With foreign rules in both variants the system's is used and kept, unless another one is configured",
  async (t) => {
    await ownNetns();
    await seed("nft");
    await seed("legacy");
    const before = [await dump("nft"), await dump("legacy")] as const;
    await ensure(network(), "auto");
    t.regex(await dump("nft"), /podnet:network:default/);
    t.is(await dump("legacy"), before[1]);
    await ensure(network(), "legacy");
    t.is(await dump("nft"), before[0]);
    t.regex(await dump("legacy"), /podnet:network:default/);
    await takeAway();
    t.deepEqual([await dump("nft"), await dump("legacy")], before);
  },
);

test.serial("The variant that others use is used", async (t) => {
  await ownNetns();
  await seed("legacy", "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -s 10.1.1.1/32 -j DROP\nCOMMIT\n");
  t.true(
    (await ensure(network(), "auto")).every(
      (change) => change.kind === "iptables" && change.variant === "legacy",
    ),
  );
  t.is(await dump("nft"), "");
});

test.serial("Looking makes no tables", async (t) => {
  await ownNetns();
  const { saved } = await observeFirewall(iptables, signal);
  t.is(saved.nft.size + saved.legacy.size, 0);
  t.is(await dump("nft"), "");
  t.is((await run(["cat", "/proc/net/ip_tables_names"])).stdout, "");
});

test.serial("A refused commit changes nothing and says what iptables said", async (t) => {
  await ownNetns();
  for (const variant of variants) {
    const edit = {
      table: "filter",
      makesChain: false,
      lines: ["-I FORWARD 1 -i a -j ACCEPT", "-I FORWARD 9 -i b -j ACCEPT"],
    } as const;
    const error = await t.throwsAsync(() => commitTable(iptables, variant, edit, signal));
    t.true(isPodnetError(error, "FIREWALL_FAILED"));
    if (isPodnetError(error)) t.truthy(error.details["stderr"]);
    t.false((await dump(variant)).includes("-i a"));
  }
});

const sortLines = (text: string): string => text.split("\n").toSorted().join("\n");

const golden = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:HYPER - [0:0]
-A FORWARD -o hyper0 -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment "podnet:network:default" -j ACCEPT
-A FORWARD -o hyper0 -m comment --comment "podnet:network:default" -j HYPER
-A FORWARD -i hyper0 -m comment --comment "podnet:network:default" -j ACCEPT
-A HYPER -o hyper0 -m mark --mark 0x2000/0x2000 -m comment --comment "podnet:network:default" -j ACCEPT
-A HYPER ! -i hyper0 -o hyper0 -m comment --comment "podnet:network:default" -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:HYPER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -m comment --comment "podnet:chain:HYPER" -j HYPER
-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -m comment --comment "podnet:chain:HYPER" -j HYPER
-A POSTROUTING -s 192.168.123.0/24 ! -o hyper0 -m comment --comment "podnet:network:default" -j MASQUERADE
-A HYPER -m comment --comment "podnet:chain:HYPER" -j RETURN
COMMIT
`;
