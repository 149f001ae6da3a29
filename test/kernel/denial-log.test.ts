/** What policies deny is shown live, by its packets: bounded for each pod, whatever it sends. */
import test from "ava";
import { DenialLog } from "../../daemon/policies/denial-log.ts";
import { type Verdict, Verdicts } from "../../daemon/policies/verdicts.ts";
import { systemClock } from "../../core/clock.ts";
import { PodnetError } from "../../core/errors.ts";
import { openLog } from "../../linux/log.ts";
import { openNetfilterLog } from "../../linux/netfilter-log/open-log.ts";
import { denialGroup } from "../../network/firewall/nftables/denials.ts";
import type { HostKernel } from "../../network/kernel/kernel.ts";
import type { Decisions } from "../../policy/compile.ts";
import {
  decisions,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  published,
} from "../lab/firewall-site.ts";
import { podIdOf } from "../lab/network.ts";
import { until } from "../lab/until.ts";

const { signal } = new AbortController();
const options = { firewall: "nftables", iptables: "auto" } as const;
const policy = decisions({
  default: "deny",
  rules: [
    { name: "not-9002", reason: "It is closed", action: "deny", protocol: "tcp", ports: [9002] },
    { name: "web", action: "allow", protocol: "tcp", ports: ["9001-9003"] },
    { name: "api", action: "allow", domains: ["api.example"] },
  ],
  ingress: {
    default: "allow",
    rules: [{ name: "not-81", action: "deny", protocol: "tcp", ports: [81] }],
  },
});
const [two, three] = [podIdOf(2), podIdOf(3)];

async function openStage(kernel?: (real: HostKernel) => HostKernel) {
  const policies = new Map<string, Decisions>([
    [two, policy],
    [three, policy],
  ]);
  const site = await FirewallSite.open(options, {
    policies,
    ...(kernel === undefined ? {} : { kernel }),
  });
  await site.ensure(dualNetwork());
  const ports = ([4, 6] as const).map((family) =>
    published(2, family, { hostPort: 8081, podPort: 81 }),
  );
  const pods = [dualPod(2, ports), dualPod(3)];
  for (const [i, pod] of pods.entries()) {
    await site.pod(i + 2);
    await site.ensure(pod);
  }
  await site.host.apply({ kind: "policies", now: () => pods }, signal);
  await site.serve("outside", "tcp", 9001, 9002);
  const verdicts = new Verdicts({
    clock: systemClock,
    ownerOf: (holder) => ({ container: holder === two ? "pod2" : "pod3" }),
  });
  const seen: Verdict[] = [];
  verdicts.follow((verdict) => void seen.push(verdict));
  const open = (): DenialLog =>
    new DenialLog({
      read: openNetfilterLog,
      observe: site.host.observe,
      decisionsOf: ({ key }) => policies.get(key),
      verdicts,
      log: openLog({ component: "test", level: "silent" }),
    });
  return {
    site,
    seen,
    open,
    texts: () =>
      seen.map(
        ({ owner, direction, rule, reason, protocol, address, port = "-" }) =>
          `${owner.container} ${direction} ${rule} (${reason}) ${protocol} ${address} ${port}`,
      ),
    /** Sends datagrams that are denied. */
    flood: (pod: string, count: number) =>
      site.inside(
        pod,
        process.execPath,
        "-e",
        `const socket = require("node:dgram").createSocket("udp4").unref();
         socket.on("error", () => {});
         for (let i = 0; i < ${count}; i++) socket.send("x", 9999, "${outsideAddress[4]}");
         setTimeout(() => {}, 300);`,
      ),
    [Symbol.asyncDispose]: () => site[Symbol.asyncDispose](),
  };
}

test.serial(
  "a denied packet is shown with its pod, rule and reason, of both families and directions",
  async (t) => {
    await using stage = await openStage();
    const { site, texts } = stage;
    await using _log = stage.open();
    t.regex(await site.ask("pod2", "tcp", outsideAddress[4], 9001), / 9001$/);
    t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
    t.is(await site.ask("pod3", "tcp", outsideAddress[6], 9002), "refused");
    await site.askInVain("pod2", "udp", outsideAddress[6], 443);
    t.is(await site.ask("outside", "tcp", hostAddresses[6].outer, 8081), "refused");
    await until("four verdicts", () => texts().length >= 4);
    t.deepEqual(
      texts().toSorted(),
      [
        `pod2 egress not-9002 (It is closed) tcp ${outsideAddress[4]} 9002`,
        `pod3 egress not-9002 (It is closed) tcp ${outsideAddress[6]} 9002`,
        `pod2 egress default (QUIC hides the name: use TCP) udp ${outsideAddress[6]} 443`,
        `pod2 ingress not-81 () tcp ${outsideAddress[6]} 81`,
      ].toSorted(),
    );
  },
);

test.serial(
  "a pod that is denied much is shown in part and counted whole, and hides no other one",
  async (t) => {
    await using stage = await openStage();
    const { site, seen } = stage;
    await using _log = stage.open();
    await stage.flood("pod2", 20_000);
    t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
    t.is(await site.ask("pod3", "tcp", outsideAddress[4], 9004), "refused");
    const of = (pod: string, rule: string): number =>
      seen.filter(({ owner, rule: by }) => owner.container === pod && by === rule).length;
    await until("the neighbour's", () => of("pod3", "default") === 1);
    await until("another rule's", () => of("pod2", "not-9002") === 1);
    const counted = await site.host.observe.denials(signal);
    const packets = counted
      .filter(({ owner }) => owner.key === two)
      .reduce((sum, each) => sum + each.packets, 0);
    t.is(packets, 20_001);
    // Ten at once, and five a second.
    t.true(of("pod2", "default") < 200, `${of("pod2", "default")}`);
    t.true(of("pod2", "default") >= 10);
  },
);

test.serial("another reader of the log is waited for, and denials go on meanwhile", async (t) => {
  await using stage = await openStage();
  const { site, texts } = stage;
  const other = openNetfilterLog(
    denialGroup,
    () => {},
    () => {},
  );
  await using _log = stage.open();
  t.throws(
    () =>
      openNetfilterLog(
        denialGroup,
        () => {},
        () => {},
      ),
    { message: /another program has it: EPERM/ },
  );
  t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
  t.deepEqual(texts(), []);
  other[Symbol.dispose]();
  await until("a verdict", async () => {
    t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
    return texts().length > 0;
  });
});

test.serial(
  "a kernel without the log has policies and counts, and says what it lacks",
  async (t) => {
    /** As such a kernel does. */
    const without = (real: HostKernel): HostKernel => ({
      ...real,
      nftables: {
        ...real.nftables,
        openCounter: () => real.nftables.openCounter(),
        open: () => {
          const opened = real.nftables.open();
          return {
            commit: (what, commands) =>
              commands.includes("log group")
                ? Promise.reject(
                    new PodnetError("FIREWALL_FAILED", "nftables", {
                      details: { nft: "Error: Could not process rule: No such file or directory" },
                    }),
                  )
                : opened.commit(what, commands),
            change: (what, table, changes) => opened.change(what, table, changes),
            get: (what, command) => opened.get(what, command),
            list: (what, command) => opened.list(what, command),
            close: () => opened.close(),
          };
        },
      },
    });
    await using stage = await openStage(without);
    const { site } = stage;
    t.regex(await site.ask("pod2", "tcp", outsideAddress[4], 9001), / 9001$/);
    t.is(await site.ask("pod2", "tcp", outsideAddress[4], 9002), "refused");
    const [counted] = await site.host.observe.denials(signal);
    t.is(counted?.packets, 1);
    t.regex(site.host.observe.guardLacking.join(), /live verdicts of policies/);
  },
);
