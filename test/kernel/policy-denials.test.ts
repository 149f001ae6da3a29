/** What policies deny is counted by pod and rule: real packets, next to such as pass. */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { Denials } from "../../daemon/policies/denials.ts";
import { watchDenials } from "../../daemon/policies/denial-watch.ts";
import { Journal } from "../../daemon/events/journal.ts";
import { eventsOfKind } from "../../daemon/events/store.ts";
import { Database } from "../../daemon/store/database.ts";
import { openLog } from "../../linux/log.ts";
import { ruleNumber } from "../../network/firewall/nftables/denials.ts";
import type { PodFragment } from "../../network/model/desired.ts";
import type { Decisions } from "../../policy/compile.ts";
import { type DriverUnderTest, driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  decisions,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  published,
} from "../lab/firewall-site.ts";
import { podMark } from "../../network/model/ownership.ts";
import { podIdOf } from "../lab/network.ts";
import { until } from "../lab/until.ts";

const { signal } = new AbortController();
const families = [4, 6] as const;

const policy = decisions({
  default: "deny",
  rules: [
    { name: "not-9002", reason: "It is closed", action: "deny", protocol: "tcp", ports: [9002] },
    { name: "web", action: "allow", protocol: "tcp", ports: ["9001-9003"] },
  ],
  ingress: {
    default: "allow",
    rules: [{ name: "not-81", action: "deny", protocol: "tcp", ports: [81] }],
  },
});
const names = new Map([
  [ruleNumber("egress", "p", "not-9002"), "not-9002"],
  [ruleNumber("egress", "p", "default"), "default"],
  [ruleNumber("ingress", "p", "not-81"), "not-81"],
]);

/** Pod 2, with two ports that are reached from outside. */
const published2 = dualPod(
  2,
  families.flatMap((family) =>
    [81, 82].map((podPort) => published(2, family, { hostPort: 8000 + podPort, podPort })),
  ),
);

async function openStage(options: DriverUnderTest["options"]) {
  const policies = new Map<string, Decisions>();
  const site = await FirewallSite.open(options, { policies });
  await site.ensure(dualNetwork());
  for (const n of [2, 3]) {
    await site.pod(n);
    await site.ensure(n === 2 ? published2 : dualPod(n));
  }
  await site.serve("outside", "tcp", 9001, 9002);
  await site.serve("pod2", "tcp", 81, 82);
  return {
    site,
    policies,
    async police(decided: Decisions | undefined, ...pods: readonly PodFragment[]) {
      for (const { key } of pods) {
        if (decided === undefined) policies.delete(key);
        else policies.set(key, decided);
      }
      await site.host.apply({ kind: "policies", now: () => pods }, signal);
    },
    /** By pod and rule, in order. */
    denials: async (): Promise<string[]> =>
      (await site.host.observe.denials(signal))
        .map(({ owner, rule, packets }) => `${owner.key} ${names.get(rule)} ${packets}`)
        .toSorted(),
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}

const [two, three] = [podIdOf(2), podIdOf(3)];

for (const { name, options } of driversUnderTest)
  test.serial(
    `each packet that a policy denies is counted by its pod and rule, and none that passes (${name})`,
    async (t) => {
      await using stage = await openStage(options);
      const { site } = stage;
      t.deepEqual(await stage.denials(), [], "without a policy");
      await stage.police(policy, published2, dualPod(3));
      for (const family of families) {
        t.regex(await site.ask("pod2", "tcp", outsideAddress[family], 9001), / 9001$/);
        t.regex(await site.ask("pod3", "tcp", outsideAddress[family], 9001), / 9001$/);
        t.regex(await site.ask("outside", "tcp", hostAddresses[family].outer, 8082), / 82$/);
      }
      t.deepEqual(await stage.denials(), [], "what passes");
      for (const family of families)
        t.is(await site.ask("pod2", "tcp", outsideAddress[family], 9002), "refused");
      t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
      t.is(await site.ask("pod3", "tcp", outsideAddress[6], 9004), "refused");
      t.is(await site.ask("outside", "tcp", hostAddresses[6].outer, 8081), "refused");
      const counted = [`${three} default 1`, `${two} not-81 1`, `${two} not-9002 3`];
      t.deepEqual(await stage.denials(), counted.toSorted());
      // Another program takes what is counted for nothing of its own; a repair leaves the counts.
      const { host } = site;
      await site.inside("host", "nft", "flush chain inet podnet_policy denied_egress");
      await host.inspectRules(
        () => [published2, dualPod(3)],
        () => true,
        signal,
      );
      t.is(await site.ask("pod3", "tcp", outsideAddress[6], 9004), "refused");
      t.deepEqual(
        await stage.denials(),
        counted.map((line) => line.replace("default 1", "default 2")).toSorted(),
      );
    },
  );

test.serial("a pod that gets an address of another one inherits none of its denials", async (t) => {
  await using stage = await openStage({ firewall: "nftables", iptables: "auto" });
  const { site } = stage;
  await stage.police(policy, published2, dualPod(3));
  for (const pod of ["pod2", "pod3"])
    t.is(await site.ask(pod, "tcp", outsideAddress[4], 9002), "refused");
  const key = podIdOf(7);
  const ports = dualPod(2).ports.map((port) => ({ ...port, alias: podMark(key, 0) }));
  const other = { ...dualPod(2), key, ports };
  await stage.police(undefined, dualPod(2));
  await stage.police(policy, other);
  t.deepEqual(await stage.denials(), [`${three} not-9002 1`]);
  t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
  t.deepEqual(await stage.denials(), [`${three} not-9002 1`, `${other.key} not-9002 1`].toSorted());
});

test.serial(
  "a rule's first denial of a pod is an event, at most one a minute; a restart repeats none",
  async (t) => {
    await using stage = await openStage({ firewall: "nftables", iptables: "auto" });
    const { site, policies } = stage;
    await stage.police(policy, dualPod(2), dualPod(3));
    using db = Database.openIn(mkdtempSync(join(tmpdir(), "podnet-denials-")));
    const state = { ms: 1_000_000, looks: 0 };
    const clock = { now: () => state.ms, monotonic: () => state.ms };
    const denials = new Denials({
      observe: site.host.observe,
      decisionsOf: ({ key }) => policies.get(key),
    });
    const open = (): AsyncDisposable =>
      watchDenials({
        db,
        journal: new Journal(db, clock),
        denials: {
          list: (within) => {
            state.looks++;
            return denials.list(within);
          },
        },
        ownerOf: (holder) =>
          holder === two
            ? { pod: { id: two as never, name: "two" as never } }
            : { container: "c3" },
        clock,
        log: openLog({ component: "test", level: "silent" }),
        everyMs: 10,
      });
    const texts = (): string[] => eventsOfKind(db, "denial").map(({ data }) => data.text);
    const look = async (): Promise<void> => {
      const before = state.looks;
      await until("two more looks", () => state.looks >= before + 2);
    };
    const ask = async (pod: string, port: number): Promise<unknown> =>
      t.is(await site.ask(pod, "tcp", outsideAddress[4], port), "refused");
    const first = "1 packet denied (egress) by p/not-9002: It is closed";
    {
      await using _watch = open();
      t.regex(await site.ask("pod2", "tcp", outsideAddress[4], 9001), / 9001$/);
      await look();
      t.deepEqual(texts(), [], "what passes is none");
      await ask("pod2", 9002);
      await until("an event", () => texts().length > 0);
      await ask("pod2", 9002);
      await ask("pod2", 9004);
      state.ms += 59_000;
      await look();
      t.deepEqual(texts(), [first], "more by a rule is none, and another rule waits");
    }
    await using _again = open();
    await look();
    t.deepEqual(texts(), [first], "an event that was sent is not repeated");
    state.ms += 1000;
    await until("another rule", () => texts().length > 1);
    const second = "1 packet denied (egress) by p/default: no rule allows it";
    t.deepEqual(texts(), [first, second]);
    // Each has a minute of its own, and a container is no pod.
    await ask("pod3", 9002);
    await until("its neighbour's", () => texts().length > 2);
    t.is(texts().at(-1), `c3: ${first}`);
    t.deepEqual(
      eventsOfKind(db, "denial").map(({ podName = "-" }) => podName),
      ["two", "two", "-"],
    );
  },
);
