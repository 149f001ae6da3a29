/** What a pod opens is noted while it is learned from: real connections, of both families. */
import test from "ava";
import type { Ip } from "../../core/address.ts";
import { Learning } from "../../daemon/policies/learning.ts";
import type { DomainName } from "../../policy/domain.ts";
import type { LearnedPolicy } from "../../policy/learned.ts";
import { openLog } from "../../linux/log.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  decisions,
  dualNetwork,
  dualPod,
  FirewallSite,
  outsideAddress,
} from "../lab/firewall-site.ts";

const { signal } = new AbortController();
const two = { holder: dualPod(2).key, shown: "two", name: "two" };
const policy = decisions({
  default: "allow",
  rules: [{ name: "not-9002", action: "deny", protocol: "tcp", ports: [9002] }],
});

async function openStage(options: (typeof driversUnderTest)[number]["options"]) {
  const site = await FirewallSite.open(options, { policies: new Map([[two.holder, policy]]) });
  await site.ensure(dualNetwork());
  for (const n of [2, 3]) {
    await site.pod(n);
    await site.ensure(dualPod(n));
  }
  await site.host.apply({ kind: "policies", now: () => [dualPod(2)] }, signal);
  await site.serve("outside", "tcp", 9001, 9002, 9003);
  await site.serve("outside", "udp", 9053);
  const runs = { pod: true };
  const learning = new Learning({
    network: site.host,
    fragmentOf: (id) => (runs.pod && id === two.holder ? dualPod(2) : undefined),
    log: openLog({ component: "test", level: "silent" }),
  });
  return {
    site,
    learning,
    runs,
    tables: () => site.inside("host", "nft", "list", "tables"),
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}

const rulesOf = ({ document }: LearnedPolicy): string[] =>
  document.rules.map(({ name, cidrs, domains }) => [name, cidrs ?? domains].flat().join(" "));

for (const { name, options } of driversUnderTest)
  test.serial(`a policy has what its pod used, and nothing of others (${name})`, async (t) => {
    await using stage = await openStage(options);
    const { site, learning } = stage;
    t.notRegex(await stage.tables(), /podnet_learn/);
    const learned = learning.learn(two, undefined, signal);
    t.deepEqual(rulesOf((await learned.next()).value as LearnedPolicy), []);
    t.regex(await stage.tables(), /podnet_learn/);
    t.regex(await site.ask("pod2", "tcp", outsideAddress[4], 9001), / 9001$/);
    t.regex(await site.ask("pod2", "tcp", outsideAddress[6], 9001), / 9001$/);
    t.regex(await site.ask("pod2", "udp", outsideAddress[6], 9053), / 9053$/);
    t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
    t.regex(await site.ask("pod3", "tcp", outsideAddress[4], 9003), / 9003$/);
    await site.inside("pod2", "ping", "-c", "1", "-W", "5", outsideAddress[4]);
    learning.addName(two.holder, "api.example" as DomainName, ["203.0.113.1" as Ip]);
    learning.addName("another", "other.example" as DomainName, []);
    const wanted = [
      `icmp ${outsideAddress[4]}`,
      `tcp-9001 ${outsideAddress[4]} ${outsideAddress[6]}`,
      `udp-9053 ${outsideAddress[6]}`,
      "names api.example",
    ];
    let last: string[] = [];
    for await (const each of learned) {
      last = rulesOf(each);
      if (last.length >= wanted.length) break;
    }
    t.deepEqual(last, wanted);
    // The caller has gone.
    t.notRegex(await stage.tables(), /podnet_learn/);
    t.false(learning.isLearning(two.holder));
  });

test.serial("learning ends with its time, its pod and its caller; one pod at a time", async (t) => {
  const [{ options }] = driversUnderTest as [(typeof driversUnderTest)[number]];
  await using stage = await openStage(options);
  const { learning, runs } = stage;
  const timed = await Array.fromAsync(learning.learn(two, 100, signal));
  t.is(timed.length, 2, "when it begins, and at the end");
  const first = learning.learn(two, undefined, signal);
  await first.next();
  await t.throwsAsync(learning.learn(two, undefined, signal).next(), { code: "LIMIT_REACHED" });
  t.regex(await stage.tables(), /podnet_learn/, "the first one goes on");
  runs.pod = false;
  t.false((await first.next()).done);
  t.true((await first.next()).done);
  t.notRegex(await stage.tables(), /podnet_learn/);
  await t.throwsAsync(learning.learn(two, undefined, signal).next(), { code: "WRONG_STATE" });
  runs.pod = true;
  const caller = new AbortController();
  const second = learning.learn(two, undefined, caller.signal);
  await second.next();
  const next = second.next();
  caller.abort();
  t.true((await next).done);
  t.notRegex(await stage.tables(), /podnet_learn/);
});

for (const [what, command] of [
  ["the table", "delete table inet podnet_learn"],
  ["its rules", "flush chain inet podnet_learn opening"],
  ["its elements", "flush set inet podnet_learn learning4"],
] as const)
  test.serial(`learning goes on after another program has removed ${what}`, async (t) => {
    const [{ options }] = driversUnderTest as [(typeof driversUnderTest)[number]];
    await using stage = await openStage(options);
    const { site, learning } = stage;
    const learned = learning.learn(two, undefined, signal);
    await learned.next();
    t.regex(await site.ask("pod2", "udp", outsideAddress[4], 9053), / 9053$/);
    t.deepEqual(rulesOf((await learned.next()).value as LearnedPolicy), [
      `udp-9053 ${outsideAddress[4]}`,
    ]);
    await site.inside("host", "nft", command);
    const over = new AbortController();
    const connections = (async () => {
      while (!over.signal.aborted)
        t.regex(await site.ask("pod2", "tcp", outsideAddress[4], 9001), / 9001$/);
    })();
    // The next answer is about a connection that began after the repair, and has what was before.
    t.deepEqual(rulesOf((await learned.next()).value as LearnedPolicy), [
      `tcp-9001 ${outsideAddress[4]}`,
      `udp-9053 ${outsideAddress[4]}`,
    ]);
    over.abort();
    await connections;
    await learned.return(undefined);
    t.notRegex(await stage.tables(), /podnet_learn/);
  });

test.serial("what a podnetd that was killed left is an orphan at the next start", async (t) => {
  const [{ options }] = driversUnderTest as [(typeof driversUnderTest)[number]];
  await using stage = await openStage(options);
  const { site, learning } = stage;
  // (One that was killed never reads on.)
  const killed = learning.learn(two, undefined, signal);
  await killed.next();
  const known = {
    pods: new Set([two.holder]),
    ruled: new Set([two.holder]),
    networks: new Set(["default"]),
    attachments: new Set<never>(),
  };
  await site.host.remove({ kind: "orphans", known } as never, signal);
  t.notRegex(await stage.tables(), /podnet_learn/);
  t.regex(await site.ask("pod2", "tcp", outsideAddress[4], 9001), / 9001$/);
  t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
  await killed.return(undefined);
});
