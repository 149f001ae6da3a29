/**
 * Guard, policies and limits are podnet's; what is said of them is said by programs that know
 * nothing of podnet.
 */
import test from "ava";
import type { Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { Check } from "../../daemon/verify/check.ts";
import { compareGuard } from "../../daemon/verify/compare-guard.ts";
import { compareLimits } from "../../daemon/verify/compare-limits.ts";
import { hearGuard } from "../../daemon/verify/query-guard-source.ts";
import { queryHostSource } from "../../daemon/verify/query-host-source.ts";
import { run } from "../../linux/processes/command.ts";
import type { PodFragment } from "../../network/model/desired.ts";
import { compile, type Decisions } from "../../policy/compile.ts";
import { readPolicy } from "../../policy/read-policy.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import { dualNetwork, dualPod, FirewallSite, podMac } from "../lab/firewall-site.ts";

const { signal } = new AbortController();
const differing = (checks: readonly Check[]): string[] =>
  checks.filter(({ ok }) => !ok).map((c) => `${c.subject}: ${c.found} instead of ${c.wanted}`);

const policy: Decisions = compile(
  [
    readPolicy({
      name: "p",
      default: "deny",
      rules: [{ name: "web", action: "allow", ports: [80] }],
    }),
  ],
  { pods: [], host: [], hostServices: [], cloudMetadata: false },
);

/** Pod 2 has a policy, another MAC and an address of its `lo`; pod 3 has no guard. */
async function openStage(options: (typeof driversUnderTest)[number]["options"]) {
  const {
    ports: [port],
    ...two
  } = dualPod(2);
  if (port === undefined) throw new Error("No port");
  const pod: PodFragment = {
    ...two,
    ports: [
      {
        ...port,
        otherMacs: [podMac(20)],
        otherAddresses: ["192.168.123.22" as Ip],
        ifb: "pitap2" as never,
        rates: {
          toGuest: { bitsPerSecond: 100_000_000, packetsPerSecond: 10_000 },
          fromGuest: { bitsPerSecond: 50_000_000 },
        },
      },
    ],
    published: [],
    sources: [{ tap: port.tap, address: "10.7.0.1" as Ip }],
  };
  const { ports: open, ...three } = dualPod(3);
  const unguarded = { ...three, ports: open.map((each) => ({ ...each, guard: "off" as const })) };
  const policies = new Map([[pod.key, policy]]);
  const site = await FirewallSite.open(options, { policies });
  await site.ensure(dualNetwork());
  for (const [n, each] of [
    [2, pod],
    [3, unguarded],
  ] as const) {
    await site.pod(n);
    await site.ensure(each);
  }
  const heard = async () => {
    const report = await hearGuard(signal);
    if (report === undefined) throw new Error("There is no nft");
    return report;
  };
  return {
    site,
    pod,
    heard,
    /** What differs after a change by another program. */
    seen: async (...commands: string[]): Promise<string[]> => {
      for (const command of commands) await run(["nft", command]);
      const report = await heard();
      return [
        ...differing(compareGuard({ pod, policed: true }, report)),
        ...differing(compareGuard({ pod: unguarded, policed: false }, report)),
      ];
    },
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}

for (const { name, options } of driversUnderTest)
  test.serial(`what others change of the guard and of policies is named (${name})`, async (t) => {
    await using stage = await openStage(options);
    const { seen, pod } = stage;
    t.deepEqual(await seen(), []);
    const report = await stage.heard();
    t.deepEqual(
      differing(compareGuard({ pod, policed: false }, report)),
      ["192.168.123.2", "fd00:123::2"].flatMap((ip) =>
        ["egress", "ingress"].map(
          (way) => `${way} of ${ip} on hyper0 asks a policy: yes instead of no`,
        ),
      ),
      "what is left of a policy",
    );
    t.deepEqual(await seen('add element bridge podnet addresses4 { "tap2" . 192.168.123.3 }'), [
      "guard tap2 sends from: 10.7.0.1 192.168.123.2 192.168.123.22 192.168.123.3 fd00:123::2 fe80::5054:ff:fe00:14 fe80::5054:ff:fe00:2 instead of 10.7.0.1 192.168.123.2 192.168.123.22 fd00:123::2 fe80::5054:ff:fe00:14 fe80::5054:ff:fe00:2",
    ]);
    await seen('delete element bridge podnet addresses4 { "tap2" . 192.168.123.3 }');
    const foreign = '{ "tap2" . 192.168.123.3 . 0x525400000099 }';
    const pairs = ["02", "14"].flatMap((mac) =>
      ["10.7.0.1", "192.168.123.2", "192.168.123.22"].map((ip) => `52:54:00:00:00:${mac}/${ip}`),
    );
    t.deepEqual(await seen(`add element bridge podnet senders4 ${foreign}`), [
      `guard tap2 sends at once as: ${pairs.join(" ")} 52:54:00:00:00:99/192.168.123.3 instead of ${pairs.join(" ")}`,
    ]);
    await seen(`delete element bridge podnet senders4 ${foreign}`);
    t.deepEqual(
      await seen(
        'delete element bridge podnet macs { "tap2" . 0x525400000014 }',
        'add element bridge podnet any6 { "tap2" }',
        'delete element bridge podnet unguarded { "tap3" }',
      ),
      [
        "guard tap2 sends with MAC: 52:54:00:00:00:02 instead of 52:54:00:00:00:02 52:54:00:00:00:14",
        "guard tap2 lets choose: any6 instead of absent",
        "guard tap3 lets choose: absent instead of unguarded",
      ],
    );
    await seen(
      'add element bridge podnet macs { "tap2" . 0x525400000014 }',
      'delete element bridge podnet any6 { "tap2" }',
      'add element bridge podnet unguarded { "tap3" }',
    );
    const asks = (way: string, ip: string): string =>
      `${way} of ${ip} on hyper0 asks a policy: no instead of yes`;
    t.deepEqual(
      await seen('delete element inet podnet_policy egress6 { "hyper0" . fd00:123::2 }'),
      [asks("egress", "fd00:123::2")],
    );
    // A chain without rules lets everything pass; a hook without rules asks nothing.
    const { stdout } = await run(["nft", "list map inet podnet_policy ingress4"]);
    const [, chain = ""] = /jump (policy_\w+)/.exec(stdout) ?? [];
    t.deepEqual(await seen(`flush chain inet podnet_policy ${chain}`), [
      asks("ingress", "192.168.123.2"),
      asks("egress", "fd00:123::2"),
      asks("ingress", "fd00:123::2"),
    ]);
    t.is((await seen("flush chain inet podnet_policy forward")).length, 4);
    t.deepEqual(
      (await seen("flush chain bridge podnet arriving")).filter((line) =>
        line.startsWith("guard asks"),
      ),
      [1, 2].map(() => "guard asks for the MAC of frames: no instead of yes"),
    );
    t.true(
      (await seen("delete table bridge podnet")).some((line) =>
        line.startsWith("guard tap2 sends"),
      ),
    );
  });

test.serial("the queues of limits are read as the kernel has them", async (t) => {
  await using stage = await openStage({ firewall: "nftables", iptables: "auto" });
  const [port] = stage.pod.ports;
  const expected = {
    ...port,
    addresses: [],
    gateways: [],
    routes: [],
    nicId: "",
    netdevId: "",
    mac: "" as Mac,
    slot: 0,
  };
  const seen = async (...command: string[]): Promise<string[]> => {
    if (command.length > 0) await run(["tc", ...command]);
    const host = await queryHostSource(["tap2", "pitap2"], signal);
    return differing(compareLimits(expected as never, host));
  };
  t.deepEqual(await seen(), []);
  t.deepEqual(await seen("qdisc", "del", "dev", "pitap2", "root"), [
    "limit out of tap2: absent instead of 6250000 bytes a second",
  ]);
  t.deepEqual(await seen("qdisc", "del", "dev", "tap2", "ingress"), [
    "limit out of tap2: absent instead of 6250000 bytes a second",
    "frames out of tap2 go by: absent instead of pitap2",
  ]);
  const change = "qdisc replace dev tap2 root tbf rate 200mbit burst 100k limit 1m";
  t.regex(
    (await seen(...change.split(" "))).join("\n"),
    /^limit into tap2: .*25000000 bytes a second instead of 10000 packets a second, 12500000 bytes/m,
  );
});

test("addresses of a foreign bridge are not podnet's to know", (t) => {
  const [port] = dualPod(2).ports;
  const prefix = "192.168.123.2/24" as IpPrefix;
  const pod = { ...dualPod(2), ports: [{ ...port, foreign: true, guestAddresses: [prefix] }] };
  const report = {
    asked: true,
    ports: [
      {
        link: "tap2",
        macs: [podMac(2)],
        addresses: ["192.168.123.2"],
        senders: ["52:54:00:00:00:02/192.168.123.2"],
        sets: ["any6"],
      },
    ],
    directions: [],
    holders: [],
  };
  t.deepEqual(differing(compareGuard({ pod: pod as PodFragment, policed: false }, report)), []);
});
