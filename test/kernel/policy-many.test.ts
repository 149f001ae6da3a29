import test from "ava";
import type { Ip } from "../../core/address.ts";
import { Conntrack } from "../../linux/conntrack/conntrack.ts";
import type { Decisions } from "../../policy/compile.ts";
import { called as calledDuring } from "../lab/called.ts";
import {
  decisions,
  dualNetwork,
  dualPod,
  FirewallSite,
  outsideAddress,
  podAddress,
} from "../lab/firewall-site.ts";

const { signal } = new AbortController();

const allowing = (...ports: readonly number[]): Decisions =>
  decisions({
    default: "deny",
    rules: [{ name: "some", action: "allow", cidrs: [outsideAddress[4]], ports }],
  });

/** What is called of the kernel while something is done, in order. */
const called = (work: () => Promise<unknown>): Promise<string[]> =>
  calledDuring(work, ({ boundary }) => boundary === "netlink");

test.serial(
  "a policy that changes for one pod costs as many calls with others as without, and ends its flows alone",
  async (t) => {
    const policies = new Map<string, Decisions>();
    await using site = await FirewallSite.open(
      { firewall: "nftables", iptables: "auto" },
      { policies },
    );
    await site.ensure(dualNetwork());
    const pods = [2, 3, 4].map((n) => dualPod(n));
    const [one, two, three] = pods;
    if (one === undefined || two === undefined || three === undefined) throw new Error("Too few");
    for (const n of [2, 3, 4]) {
      await site.pod(n);
      await site.ensure(dualPod(n));
    }
    await site.serve("outside", "udp", 9001, 9002);
    const change = async (all: readonly (typeof one)[], decided: Decisions): Promise<string[]> => {
      policies.set(one.key, decided);
      return called(async () => {
        await site.host.apply({ kind: "policies", now: () => all }, signal);
        await site.host.remove({ kind: "denied-connections", of: all }, signal);
      });
    };
    // (Where the kernel remembers no connection, it is not asked for any.)
    await site.ask("pod2", "udp", outsideAddress[4], 9001);
    await change([one], allowing(9001));
    const alone = await change([one], allowing(9001, 9002));
    for (const { key } of [two, three]) policies.set(key, allowing(9001, 9002));
    await change(pods, allowing(9001));
    const together = await change(pods, allowing(9001, 9002));
    const flows = (calls: readonly string[]): number =>
      calls.filter((call) => call === "list flows").length;
    t.deepEqual([flows(alone), flows(together)], [4, 4]);
    const others = (calls: readonly string[]): string[] =>
      calls.filter((call) => !call.includes("flows"));
    t.deepEqual(others(together), others(alone));
    // Each pod's flows are judged by its own decisions.
    for (const n of [2, 3, 4])
      t.regex(await site.talk(`pod${n}`, outsideAddress[4], 9002), / 9002$/, `pod ${n}`);
    await using conntrack = new Conntrack();
    const remembered = async (): Promise<string[]> =>
      (
        await conntrack.flows(
          "original",
          [2, 3, 4].map((n) => podAddress(n, 4) as Ip),
        )
      )
        .filter(({ original }) => original.destinationPort === 9002)
        .map(({ name, original }) => `${original.source} ${name.id?.toString()}`)
        .toSorted();
    const before = await remembered();
    t.is(before.length, 3);
    await change(pods, allowing(9001));
    // (Before a packet makes an entry anew: it may get the former one's id.)
    t.deepEqual(await remembered(), before.slice(1));
    t.notRegex(await site.heard("pod2", 9002), / 9002$/);
    for (const n of [3, 4]) t.regex(await site.heard(`pod${n}`, 9002), / 9002$/, `pod ${n}`);
    // Not even for a moment: they are those from before.
    t.deepEqual(await remembered(), before.slice(1));
  },
);
