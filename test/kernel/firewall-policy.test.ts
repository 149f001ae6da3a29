import test from "ava";
import { type Family, familyOf, parseIp } from "../../core/address.ts";
import type { PodFragment } from "../../network/model/desired.ts";
import { podMark } from "../../network/model/ownership.ts";
import type { Decisions } from "../../policy/compile.ts";
import { usualRelayPort } from "../../network/firewall/policed.ts";
import { decide } from "../../policy/decide.ts";
import { type DriverUnderTest, driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  decisions,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
  published,
} from "../lab/firewall-site.ts";

const { signal } = new AbortController();
const families = [4, 6] as const;

const toOutside = {
  default: "deny",
  rules: [
    { name: "not-9002", reason: "It is closed", action: "deny", ports: [9002] },
    {
      name: "web",
      action: "allow",
      cidrs: [outsideAddress[4]],
      protocol: "tcp",
      ports: ["9001-9003"],
    },
    {
      name: "web6",
      action: "allow",
      cidrs: [`${outsideAddress[6]}/127`],
      protocol: "tcp",
      ports: [9001],
    },
    {
      name: "names",
      action: "allow",
      cidrs: ["192.0.2.0/24", "2001:db8:2::/64"],
      protocol: "udp",
      ports: [9053],
    },
  ],
};

/** A host whose pods 2 and 3 may have policies, and servers outside. */
interface Stage extends AsyncDisposable {
  readonly site: FirewallSite;
  /** Gives pods a policy, or takes it from them, as podnetd does when policies change. */
  police(decided: Decisions | undefined, ...pods: readonly PodFragment[]): Promise<void>;
}

async function openStage(
  options: DriverUnderTest["options"] = { firewall: "nftables", iptables: "auto" },
): Promise<Stage> {
  const policies = new Map<string, Decisions>();
  const site = await FirewallSite.open(options, { policies });
  await site.ensure(dualNetwork());
  for (const n of [2, 3]) {
    await site.pod(n);
    await site.ensure(dualPod(n));
  }
  await site.serve("outside", "tcp", 9001, 9002, 9003, 9004);
  await site.serve("outside", "udp", 9053, 9054);
  return {
    site,
    async police(decided, ...pods) {
      for (const { key } of pods) {
        policies.delete(key);
        if (decided !== undefined) policies.set(key, decided);
      }
      await site.host.apply({ kind: "policies", now: () => pods }, signal);
      await site.host.remove({ kind: "denied-connections", of: pods }, signal);
    },
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}

const flows = [
  ["tcp", 9001],
  ["tcp", 9002],
  ["tcp", 9003],
  ["tcp", 9004],
  ["udp", 9053],
  ["udp", 9054],
] as const;

/** Errors of a socket that say at once that a flow is refused: RST, and ICMP's of both families. */
const unreachable = /^(?:refused|EHOSTUNREACH|EACCES)$/;

/** What comes of every flow: `passes`, `refused`, or else what was heard. */
async function outcomes(site: FirewallSite, from: string): Promise<string[]> {
  const found: string[] = [];
  for (const family of families)
    for (const [protocol, port] of flows) {
      const said = await site.ask(from, protocol, outsideAddress[family], port);
      const what = said.endsWith(` ${port}`) ? "passes" : unreachable.test(said) ? "refused" : said;
      found.push(`${protocol} ${family} ${port} ${what}`);
    }
  return found;
}

/** What `decide` says of these flows, in the words of `outcomes`. */
const decided = ({ egress }: Decisions): string[] =>
  families.flatMap((family: Family) =>
    flows.map(([protocol, port]) => {
      const ip = parseIp(outsideAddress[family]);
      const { verdict } = decide(egress, { ip, protocol, port });
      return `${protocol} ${familyOf(ip)} ${port} ${verdict === "allow" ? "passes" : "refused"}`;
    }),
  );

for (const { name, options } of driversUnderTest)
  test.serial(
    `the kernel decides about a pod's flows as the policy does, at once (${name})`,
    async (t) => {
      await using stage = await openStage(options);
      const { site } = stage;
      const policy = decisions(toOutside);
      await stage.police(policy, dualPod(2));
      t.deepEqual(await outcomes(site, "pod2"), decided(policy));
      t.true(
        (await outcomes(site, "pod3")).every((line) => line.endsWith("passes")),
        "no policy",
      );
      // Changed, and taken away: without a look at other pods, and the chains go along.
      const closed = decisions({ default: "deny", rules: [] });
      await stage.police(closed, dualPod(2));
      t.deepEqual(await outcomes(site, "pod2"), decided(closed));
      t.false(decided(closed).some((line) => line.endsWith("passes")));
      await stage.police(undefined, dualPod(2));
      t.true((await outcomes(site, "pod2")).every((line) => line.endsWith("passes")));
      t.notRegex(
        await site.inside("host", "nft", "list", "ruleset"),
        /policy_/,
        "no chain is left",
      );
    },
  );

const byName = {
  default: "deny",
  rules: [
    { name: "own", action: "allow", cidrs: [outsideAddress[4]], protocol: "tcp", ports: [443] },
    { name: "inside", action: "allow", cidrs: ["10.99.0.20"], ports: [80] },
    { name: "not", action: "deny", domains: ["bad.example"], ports: [80] },
    { name: "api", action: "allow", domains: ["api.example"] },
    { name: "six", action: "allow", cidrs: [outsideAddress[6]], ports: [443, 9001] },
  ],
};

for (const { name, options } of driversUnderTest)
  test.serial(
    `connections whose name decides go to the relay, and no others (${name})`,
    async (t) => {
      await using stage = await openStage(options);
      const { site } = stage;
      // An address that is inside: no name leads there.
      await site.inside("outside", "ip", "address", "add", "10.99.0.20/32", "dev", "eth0");
      await site.inside("host", "ip", "route", "add", "10.99.0.20", "via", outsideAddress[4]);
      await site.serve("outside", "tcp", 80, 443);
      await site.serve("outside", "udp", 443, 53);
      const asked = [outsideAddress[4], outsideAddress[6], "10.99.0.20"].flatMap((address) =>
        ([...flows, ["tcp", 80], ["tcp", 443], ["udp", 443], ["udp", 53]] as const).map(
          ([protocol, port]) => ({ address, protocol, port }),
        ),
      );
      const said = async (pod: string, only?: "tcp"): Promise<string[]> => {
        const found: string[] = [];
        for (const { address, protocol, port } of asked) {
          if (only !== undefined && protocol !== only) continue;
          const heard = await site.ask(pod, protocol, address, port);
          const [, reached] = / (\d+)$/.exec(heard) ?? [];
          const what =
            reached === String(port)
              ? "passes"
              : reached === String(usualRelayPort)
                ? "relayed"
                : unreachable.test(heard)
                  ? "refused"
                  : heard;
          found.push(`${protocol} ${address} ${port} ${what}`);
        }
        return found;
      };
      const policy = decisions(byName);
      const verdicts = { allow: "passes", relay: "relayed", deny: "refused", resolver: "refused" };
      const expected = (relay: boolean): string[] =>
        asked.map(({ address, protocol, port }) => {
          const { verdict } = decide(policy.egress, { ip: parseIp(address), protocol, port });
          const what = verdict === "relay" && !relay ? "refused" : verdicts[verdict];
          return `${protocol} ${address} ${port} ${what}`;
        });
      await stage.police(policy, dualPod(2));
      t.deepEqual(await said("pod2"), expected(false), "without a relay");
      await site.serve("host", "tcp", usualRelayPort);
      t.deepEqual(await said("pod2"), expected(true));
      const words = new Set(expected(true).map((line) => line.replace(/.* /, "")));
      t.deepEqual([...words].toSorted(), ["passes", "refused", "relayed"]);
      const free = await said("pod3", "tcp");
      t.deepEqual(
        free.filter((line) => !line.endsWith("passes")),
        [],
        "no policy",
      );
      // What is the host's own is not for the relay, and its port is not for pods.
      for (const address of [hostAddresses[4].outer, hostAddresses[4].gateway])
        t.is(await site.ask("pod2", "tcp", address, 443), "refused", address);
      for (const pod of ["pod2", "pod3"])
        t.is(await site.ask(pod, "tcp", hostAddresses[4].gateway, usualRelayPort), "refused", pod);
      // Changed once more: connections that exist are not the relay's any more.
      await stage.police(decisions(toOutside), dualPod(2));
      t.deepEqual(await outcomes(site, "pod2"), decided(decisions(toOutside)));
    },
  );

test.serial(
  "a policy of what others begin holds for published ports, and not for answers",
  async (t) => {
    await using stage = await openStage();
    const { site } = stage;
    const ports = [
      published(2, 4, { hostPort: 8081, podPort: 81 }),
      published(2, 4, { hostPort: 8082, podPort: 82 }),
    ];
    const policy = decisions({
      ingress: {
        default: "deny",
        rules: [
          { name: "outside", action: "allow", cidrs: ["192.0.2.20"], protocol: "tcp", ports: [81] },
        ],
      },
    });
    await stage.police(policy, dualPod(2, ports));
    await site.ensure(dualPod(2, ports));
    await site.serve("pod2", "tcp", 81, 82);
    const at = hostAddresses[4].outer;
    t.regex(await site.ask("outside", "tcp", at, 8081), / 81$/);
    t.is(await site.ask("outside", "tcp", at, 8082), "refused");
    t.true(
      (await outcomes(site, "pod2")).every((line) => line.endsWith("passes")),
      "its own flows",
    );
  },
);

test.serial(
  "a port of a pod that comes, is looked at or goes leaves the policies of its other ports",
  async (t) => {
    await using stage = await openStage();
    const { site } = stage;
    const [first, second] = [...dualPod(2).ports, ...dualPod(4).ports];
    if (first === undefined || second === undefined) throw new Error("A pod without a port");
    const { kind, key } = dualPod(2);
    const other = { ...second, alias: podMark(key, 1) };
    const pod: PodFragment = { kind, key, ports: [first, other] };
    const policy = decisions(toOutside);
    await stage.police(policy, { ...pod, ports: [first] });
    await site.pod(4);
    for (const what of ["comes", "is looked at"]) {
      const wanted = await site.host.diff({ ...pod, ports: [other] }, signal);
      t.false(JSON.stringify(wanted).includes(podAddress(2, 4)), what);
      await site.ensure({ ...pod, ports: [other] });
      t.deepEqual(await site.host.diff(pod, signal), [], what);
    }
    t.deepEqual(await outcomes(site, "pod4"), decided(policy));
    await site.host.remove({ ...pod, ports: [other] }, signal);
    t.deepEqual(await site.host.diff({ ...pod, ports: [first] }, signal), []);
    t.deepEqual(await outcomes(site, "pod2"), decided(policy));
    const listed = await site.inside(
      "host",
      "nft",
      "list",
      "map",
      "inet",
      "podnet_policy",
      "egress4",
    );
    t.true(listed.includes(podAddress(2, 4)));
    t.false(listed.includes(podAddress(4, 4)), "nothing of the port that went is left");
  },
);

test.serial(
  "pods with one policy share its chain, and each keeps it when another one goes",
  async (t) => {
    await using stage = await openStage();
    const { site } = stage;
    const policy = decisions(toOutside);
    await stage.police(policy, dualPod(2), dualPod(3));
    const chains = async (): Promise<number> =>
      [...(await site.inside("host", "nft", "list", "ruleset")).matchAll(/chain policy_/g)].length;
    t.is(await chains(), 2, "one a direction");
    await site.host.remove(dualPod(2), signal);
    t.is(await chains(), 2);
    t.deepEqual(await outcomes(site, "pod3"), decided(policy));
    await site.host.remove(dualPod(3), signal);
    t.is(await chains(), 0);
  },
);

test.serial(
  "what others take from a policy's chain is put back, and flows stay closed",
  async (t) => {
    await using stage = await openStage();
    const { site } = stage;
    const policy = decisions(toOutside);
    await stage.police(policy, dualPod(2));
    const table = "inet podnet_policy";
    const [chain = ""] =
      /policy_\w+/.exec(await site.inside("host", "nft", "list", "table", ...table.split(" "))) ??
      [];
    const damages = [
      `flush chain ${table} ${chain}`,
      `insert rule ${table} ${chain} counter return`,
      `flush chain ${table} forward`,
      `flush chain ${table} denied_egress`,
      `flush map ${table} egress4`,
      `delete table ${table}`,
    ];
    for (const damage of damages) {
      await site.inside("host", "nft", damage);
      await site.host.inspectRules(
        () => [dualPod(2)],
        () => true,
        signal,
      );
      t.deepEqual(await outcomes(site, "pod2"), decided(policy), damage);
    }
  },
);

test.serial("a rule of others closes nothing once no pod has a policy any more", async (t) => {
  await using stage = await openStage();
  const { site } = stage;
  await stage.police(decisions(toOutside), dualPod(2));
  await stage.police(undefined, dualPod(2));
  const passes = async (): Promise<boolean> =>
    (await site.ask("pod2", "tcp", outsideAddress[4], 9004)).endsWith(" 9004");
  t.true(await passes());
  await site.inside("host", "nft", "add rule inet podnet_policy forward drop");
  t.false(await passes(), "the rule of others closes");
  await site.host.inspectRules(
    () => [dualPod(2), dualPod(3)],
    () => true,
    signal,
  );
  t.true(await passes());
  t.notRegex(await site.inside("host", "nft", "list", "tables"), /inet podnet_policy/);
  await stage.police(decisions(toOutside), dualPod(3));
  t.deepEqual(await outcomes(site, "pod3"), decided(decisions(toOutside)), "it is made again");
});

test.serial("a flow that exists ends with the rule that allowed it", async (t) => {
  await using stage = await openStage();
  const { site } = stage;
  await stage.police(decisions(toOutside), dualPod(2));
  t.regex(await site.talk("pod2", outsideAddress[4], 9053), / 9053$/);
  await stage.police(decisions({ default: "deny", rules: [] }), dualPod(2));
  t.notRegex(await site.heard("pod2", 9053), / 9053$/);
  t.regex(await site.talk("pod3", outsideAddress[4], 9053), / 9053$/, "another pod's goes on");
});
