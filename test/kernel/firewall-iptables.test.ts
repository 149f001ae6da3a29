import test from "ava";
import type { Cidr, IpPrefix } from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { IfName } from "../../core/names.ts";
import { run } from "../../linux/processes/command.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import { publishedTable } from "../../network/firewall/nftables/published-table.ts";
import { type Variant, variants } from "../../network/model/rules.ts";
import { called } from "../lab/called.ts";
import { dualNetwork, dualPod, published } from "../lab/firewall-site.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip, networkFragment } from "../lab/network.ts";

const { signal } = new AbortController();

const ports = ([4, 6] as const).flatMap((family) => [
  published(2, family, { hostPort: 8080, podPort: 80 }),
  published(2, family, { hostPort: 9000, podPort: 7000, count: 3, protocol: "udp" }),
]);
const pod = dualPod(2, ports);

const open = (iptables: Variant | "auto"): HostNetwork =>
  openHostNetwork({ iptables, chain: "HYPER", hostSeed: "test" });

/** The tables in one order, without dates and counters. */
async function saved(command: "iptables" | "ip6tables", variant: Variant): Promise<string> {
  const text = (await run([`${command}-${variant}-save`])).stdout
    .replaceAll(/^#.*\n/gm, "")
    .replaceAll(/\[\d+:\d+\]/g, "[0:0]");
  return text
    .split(/(?<=^COMMIT\n)/m)
    .toSorted()
    .join("");
}

const golden = (family: 4 | 6): string => {
  const [subnet, loopback] =
    family === 4 ? ["192.168.123.0/24", "127.0.0.0/8"] : ["fd00:123::/64", "::1/128"];
  const network = '-m comment --comment "podnet:network:default"';
  const chain = '-m comment --comment "podnet:chain:HYPER"';
  const state = "-m conntrack --ctstate";
  return `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:HYPER - [0:0]
-A FORWARD -o hyper0 ${state} RELATED,ESTABLISHED ${network} -j ACCEPT
-A FORWARD -o hyper0 ${network} -j HYPER
-A FORWARD -i hyper0 ${network} -j ACCEPT
-A HYPER -o hyper0 -m mark --mark 0x2000/0x2000 ${network} -j ACCEPT
-A HYPER ! -i hyper0 -o hyper0 ${network} -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:HYPER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL ${chain} -j HYPER
-A OUTPUT ! -d ${loopback} -m addrtype --dst-type LOCAL ${chain} -j HYPER
-A POSTROUTING -s ${subnet} ! -o hyper0 ${network} -j MASQUERADE
-A HYPER ${chain} -j RETURN
COMMIT
`;
};

for (const variant of variants)
  test.serial(`${variant}: all rules of a host with a network and a pod, golden`, async (t) => {
    await ownNetns();
    await using host = open(variant);
    await ip("link add name tap2 type veth peer name pod2");
    const changes = await host.apply(dualNetwork(), signal);
    t.deepEqual(
      changes
        .filter((change) => change.kind === "iptables")
        .map(({ family, table }) => `${family} ${table}`),
      ["4 filter", "4 nat", "6 filter", "6 nat"],
      "one commit a table",
    );
    const ofPod = await host.apply(pod, signal);
    t.deepEqual(
      ofPod.flatMap((change) => (change.kind === "nftables" ? [change.table] : [])),
      ["bridge podnet", publishedTable.name],
    );
    t.false(ofPod.some(({ kind }) => kind === "iptables"));
    t.is(await saved("iptables", variant), golden(4));
    t.is(await saved("ip6tables", variant), golden(6));
    // What is reported of a fragment is what is made of it.
    const reported = [...host.describe(dualNetwork()), ...host.describe(pod)]
      .filter((line) => /^ip6?tables /.test(line))
      .map((line) => line.replace(" -A", ":"));
    const made = (["iptables", "ip6tables"] as const).map(async (command) => {
      const text = (await saved(command, variant)).replaceAll('"', "");
      return text
        .split(/(?<=^COMMIT\n)/m)
        .flatMap((part) =>
          [...part.matchAll(/^-A (.*)$/gm)].map(
            ([, rule]) => `${command} ${part.slice(1, part.indexOf("\n"))}: ${rule}`,
          ),
        );
    });
    t.deepEqual(
      reported.map((line) => line.replaceAll('"', "")).toSorted(),
      (await Promise.all(made)).flat().toSorted(),
    );
  });

test.serial(
  "Written in another variant from now on, nothing is left in the one before",
  async (t) => {
    await ownNetns();
    await ip("link add name tap2 type veth peer name pod2");
    await using before = open("legacy");
    await before.apply(dualNetwork(), signal);
    await before.apply(pod, signal);
    await using after = open("nft");
    await after.apply(dualNetwork(), signal);
    await after.apply(pod, signal);
    t.is(await saved("iptables", "nft"), golden(4));
    t.is(await saved("ip6tables", "nft"), golden(6));
    for (const command of ["iptables", "ip6tables"] as const)
      t.notRegex(await saved(command, "legacy"), /podnet|HYPER/);
  },
);

test.serial(
  "A network that is of one family from now on leaves nothing of the other",
  async (t) => {
    await ownNetns();
    await using host = open("nft");
    await host.apply(dualNetwork(), signal);
    t.regex(await saved("ip6tables", "nft"), /HYPER/);
    await host.apply(networkFragment(), signal);
    t.notRegex(await saved("ip6tables", "nft"), /podnet|HYPER/);
    await host.apply(dualNetwork({ gateways: dualNetwork().gateways.slice(1) }), signal);
    t.regex(await saved("ip6tables", "nft"), /HYPER/);
    t.notRegex(await saved("iptables", "nft"), /podnet|HYPER/);
  },
);

test.serial("A foreign chain of our name among those of IPv6 is theirs", async (t) => {
  await ownNetns();
  await run(["ip6tables-nft", "-N", "HYPER"]);
  await run(["ip6tables-nft", "-A", "HYPER", "-j", "ACCEPT"]);
  await using host = open("nft");
  const error = await t.throwsAsync(host.apply(dualNetwork(), signal));
  t.true(isPodnetError(error, "CHAIN_CONFLICT"));
  t.regex(String(isPodnetError(error) && error.hint), /ip6tables -t filter -F HYPER/);
  t.notRegex(await saved("iptables", "nft"), /HYPER/, "nothing is written by halves");
  await host.apply(networkFragment(), signal);
  t.regex(await saved("iptables", "nft"), /HYPER/, "control: IPv4 is free");
});

test.serial(
  "A pod costs no command of the firewall, whatever it publishes; a network does",
  async (t) => {
    await ownNetns();
    await using host = open("nft");
    await ip("link add name tap2 type veth peer name pod2");
    await host.apply(networkFragment(), signal);
    // As the sweep at podnetd's start: whether rules were left is known from then on.
    await host.remove(pod, signal);
    const commandsOf = (work: () => Promise<unknown>): Promise<string[]> =>
      called(work, ({ boundary }) => boundary === "command");
    for (const work of [
      () => host.apply(dualPod(2), signal),
      () => host.apply(pod, signal),
      () => host.apply({ ...pod, published: [] }, signal),
      () => host.remove(pod, signal),
    ])
      t.deepEqual(await commandsOf(work), [], String(work));
    const admitting = networkFragment({ admit: ["192.0.2.0/24" as Cidr] });
    const commands = await commandsOf(() => host.apply(admitting, signal));
    t.true(commands.includes("iptables-nft-restore"), commands.join());
  },
);

test.serial("Switched off, what pods have published goes with the networks' rules", async (t) => {
  await ownNetns();
  await ip("link add name tap2 type veth peer name pod2");
  await using before = open("nft");
  await before.apply(dualNetwork(), signal);
  await before.apply(pod, signal);
  const { remembered } = before;
  await using off = openHostNetwork({
    iptables: "off",
    chain: "HYPER",
    hostSeed: "test",
    remembered,
  });
  await off.apply(dualNetwork(), signal);
  await off.apply(pod, signal);
  for (const command of ["iptables", "ip6tables"] as const)
    t.notRegex(await saved(command, "nft"), /podnet|HYPER/);
  t.deepEqual(
    off.describe(pod).filter((line) => line.startsWith("ip")),
    [],
  );
});

test.serial(
  "A memory that was lost: what is found of IPv4 leads to what is left of IPv6",
  async (t) => {
    await ownNetns();
    await using before = open("nft");
    await before.apply(dualNetwork({ key: "old", bridge: "old0" as IfName }), signal);
    await using after = open("nft");
    await after.apply(networkFragment({ gateways: ["10.9.0.1/24" as IpPrefix] }), signal);
    t.regex(await saved("ip6tables", "nft"), /podnet:network:old/, "control");
    await after.remove(
      { kind: "orphans", known: { pods: new Set(), networks: new Set(["default"]) } },
      signal,
    );
    t.notRegex(await saved("ip6tables", "nft"), /podnet|HYPER/);
    t.notRegex(await saved("iptables", "nft"), /podnet:network:old/);
    t.regex(await saved("iptables", "nft"), /podnet:network:default/);
  },
);
