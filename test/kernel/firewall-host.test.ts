import test from "ava";
import type { Ip } from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import { readSysctl } from "../../linux/sysctl.ts";
import type { IptablesPrograms } from "../../network/kernel/iptables-programs.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  published,
} from "../lab/firewall-site.ts";
import { difference, foreignState, ip, networkFragment, podFragment } from "../lab/network.ts";

const { signal } = new AbortController();
const families = [4, 6] as const;
const web = families.map((family) => published(2, family, { hostPort: 8080, podPort: 80 }));

/** A foreign firewall, in every place that podnet's rules go to. */
async function foreignFirewall(): Promise<void> {
  for (const [command, net] of [
    ["iptables", "10.7.0.0/16"],
    ["ip6tables", "fd00:7::/64"],
  ] as const)
    for (const variant of ["nft", "legacy"]) {
      const rules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:THEIRS - [0:0]
-A FORWARD -s ${net} -m comment --comment "podnet: not a mark" -j THEIRS
-A THEIRS -p tcp -m multiport --dports 22,80:90 -j RETURN
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A PREROUTING -s ${net} -p tcp -m tcp --dport 8080 -j REDIRECT --to-ports 81
-A POSTROUTING -s ${net} -j MASQUERADE
COMMIT
`;
      await run([`${command}-${variant}-restore`], { stdin: rules });
    }
  await run(["nft", "-f", "-"], {
    stdin: `table inet theirs {\n chain in {\n type filter hook input priority 0; policy accept;\n tcp dport 9 drop\n }\n}\n`,
  });
}

/** All rules of everybody, with no date and no counter. */
async function allRules(): Promise<string> {
  const programs = ["iptables", "ip6tables"].flatMap((command) =>
    ["nft", "legacy"].map((variant) => `${command}-${variant}-save`),
  );
  const parts = [];
  for (const program of programs)
    parts.push((await run([program])).stdout.replaceAll(/^#.*\n|\[\d+:\d+\]/gm, ""));
  parts.push((await run(["nft", "-s", "list", "ruleset", "inet"])).stdout);
  return parts.join("\n");
}

for (const { name, options } of driversUnderTest) {
  test.serial(
    `${name}: after all of it the host is byte for byte as it was, and others' rules are so meanwhile`,
    async (t) => {
      await using site = await FirewallSite.open(options, { prepare: foreignFirewall });
      // Whom the host knows of outside is between the two of them.
      const stateNow = async (): Promise<string> =>
        (await foreignState()).replaceAll(/^\S+ dev out0 lladdr .*\n/gm, "");
      const [rules, state] = [await allRules(), await stateNow()];
      const ours = /podnet:|^:HYPER|^Bridge/;
      const theirs = (text: string): string =>
        text
          .replaceAll(/^table inet podnet(?:_guard|_shares|_published)? \{[^]*?^\}\n/gm, "")
          .split("\n")
          .filter((line) => !ours.test(line))
          .join("\n");
      await site.ensure(dualNetwork());
      await site.pod(2);
      await site.ensure(dualPod(2, web));
      t.not(await allRules(), rules, "control: there is something to take away");
      t.deepEqual(difference(theirs(rules), theirs(await allRules())), []);
      t.deepEqual(await site.host.apply(dualPod(2, web), signal), [], "made twice");
      t.deepEqual(await site.host.apply(dualNetwork(), signal), []);
      await site.host.remove(dualPod(2, web), signal);
      t.deepEqual(
        await site.host.apply(dualNetwork(), signal),
        [],
        "a pod takes along its own alone",
      );
      await site.host.remove({ kind: "everything" }, signal);
      t.deepEqual(difference(rules, await allRules()), []);
      t.deepEqual(difference(state, await stateNow()), []);
      t.deepEqual(await site.host.remove({ kind: "everything" }, signal), []);
    },
  );

  test.serial(
    `${name}: published at one address it is reached there alone, until it is published no more`,
    async (t) => {
      await using site = await FirewallSite.open(options);
      await site.ensure(dualNetwork());
      await site.pod(2);
      const one = families.map((family) =>
        published(2, family, {
          hostPort: 8080,
          podPort: 80,
          hostIp: hostAddresses[family].second as Ip,
        }),
      );
      await site.ensure(dualPod(2, one));
      await site.serve("pod2", "tcp", 80);
      const asked = async (address: string, port = 8080): Promise<string> =>
        (await site.ask("outside", "tcp", address, port)).replace(/.* /, "");
      for (const family of families) {
        t.is(await asked(hostAddresses[family].second), "80");
        t.is(await asked(hostAddresses[family].outer), "refused");
      }
      const other = families.map((family) => published(2, family, { hostPort: 8081, podPort: 80 }));
      await site.ensure(dualPod(2, other));
      for (const family of families) {
        t.is(await asked(hostAddresses[family].second), "refused", "published no more");
        t.is(await asked(hostAddresses[family].outer, 8081), "80", "but otherwise");
      }
      await site.ensure(dualPod(2, []));
      for (const family of families)
        t.is(await asked(hostAddresses[family].outer, 8081), "refused", "not at all");
      t.deepEqual(await site.host.apply(dualPod(2, []), signal), []);
    },
  );

  test.serial(`${name}: rules that others take away are seen and made again`, async (t) => {
    await using site = await FirewallSite.open(options);
    await site.ensure(dualNetwork());
    await site.pod(2);
    await site.ensure(dualPod(2, web));
    await site.serve("pod2", "tcp", 80);
    const fragments = [dualNetwork()];
    const clean = await site.host.observe.fingerprint(fragments, signal);
    t.is(await site.host.observe.fingerprint(fragments, signal), clean, "nothing has changed");
    for (const command of ["iptables", "ip6tables"])
      for (const variant of ["nft", "legacy"])
        for (const table of ["filter", "nat"])
          await run([`${command}-${variant}`, "-t", table, "-F"]);
    await run(["nft", "flush", "ruleset"]);
    t.not(await site.host.observe.fingerprint(fragments, signal), clean);
    for (const family of families)
      t.is(await site.ask("outside", "tcp", hostAddresses[family].outer, 8080), "refused");
    const heal = { heal: () => true, linksOnly: false };
    for (const fragment of [dualNetwork(), dualPod(2, web)]) {
      const { found, healed } = await site.host.inspect(() => fragment, heal, signal);
      t.true(found.length > 0 && healed);
      t.deepEqual((await site.host.inspect(() => fragment, heal, signal)).found, []);
    }
    for (const family of families)
      t.is(
        await site.ask("outside", "tcp", hostAddresses[family].outer, 8080),
        `${outsideAddress[family]} 80`,
      );
  });
}

test.serial("With IPv4 alone no command of IPv6 is run, and nothing of it is made", async (t) => {
  const calls: string[] = [];
  const reported =
    <T extends unknown[], R>(what: string, call: (...args: T) => R) =>
    (...args: T): R => {
      calls.push(what);
      return call(...args);
    };
  const watched = (programs: IptablesPrograms): IptablesPrograms => ({
    ...programs,
    save: reported("save", programs.save),
    restore: reported("restore", programs.restore),
    legacyTables: reported("legacyTables", programs.legacyTables),
  });
  await using site = await FirewallSite.open(
    { iptables: "auto" },
    { kernel: (real) => ({ ...real, ip6tables: watched(real.ip6tables) }) },
  );
  const six = async (): Promise<string> =>
    [
      await ip("-6 route show table all"),
      (await run(["sysctl", "-a", "-r", "^net\\.ipv6\\."])).stdout,
    ]
      .join("\n")
      .split("\n")
      .filter((line) => !/hyper0|tap2/.test(line))
      .join("\n");
  const before = await six();
  await site.ensure(networkFragment());
  await site.pod(2);
  const ports = [published(2, 4, { hostPort: 8080, podPort: 80 })];
  const pod = { ...podFragment(2), published: ports };
  await site.ensure(pod);
  await site.host.diff(pod, signal);
  await site.host.observe.fingerprint([networkFragment()], signal);
  await site.host.remove(
    { kind: "orphans", known: { pods: new Set([pod.key]), networks: new Set(["default"]) } },
    signal,
  );
  t.deepEqual(difference(before, await six()), []);
  await site.host.remove(pod, signal);
  await site.host.remove({ kind: "everything" }, signal);
  t.deepEqual(calls, []);
  // Control: with IPv6 they are.
  await site.ensure(dualNetwork());
  t.true(calls.includes("save") && calls.includes("restore"));
});

test.serial(
  "A host keeps the default route that it was advertised while it forwards, and listens as before after it",
  async (t) => {
    await using site = await FirewallSite.open({ iptables: "nft" });
    const [routed, listens] = [
      async () => (await ip("-6 route show default")).replace(/ expires.*/s, ""),
      () => readSysctl("net/ipv6/conf/out0/accept_ra"),
    ];
    const advertise = async (): Promise<string> => {
      for (let i = 0; i < 20 && (await routed()) === ""; i++) {
        await site.inside(
          "outside",
          "python3",
          `${import.meta.dirname}/../lab/advertise.py`,
          "eth0",
        );
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      return routed();
    };
    t.is(listens(), "1");
    const before = await advertise();
    t.regex(before, /^default via fe80::\S+ dev out0 proto ra/);
    await site.ensure(dualNetwork());
    t.is(readSysctl("net.ipv6.conf.all.forwarding"), "1");
    t.is(await routed(), before, "kept");
    t.is(listens(), "2");
    t.is(readSysctl("net/ipv6/conf/hyper0/accept_ra"), "0", "pods do not set the host's routes");
    await ip("-6 route flush proto ra");
    t.is(await routed(), "", "control: it was taken away");
    t.is(await advertise(), before, "and it goes on learning");
    await site.host.remove({ kind: "everything" }, signal);
    t.is(readSysctl("net.ipv6.conf.all.forwarding"), "0");
    t.is(listens(), "1");
    t.is(await routed(), before);
  },
);
