import test from "ava";
import { run } from "../../linux/processes/command.ts";
import {
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  published,
} from "../lab/firewall-site.ts";

const { signal } = new AbortController();
const outer = hostAddresses[4].outer;
const reached = `${outsideAddress[4]} 80`;
const sh = (command: string): Promise<unknown> => run(["sh", "-c", command]);

/**
 * What others do to what is forwarded, whether a published port is reached then, and the chain that
 * is in the way.
 */
const others: readonly (readonly [string, string, string | undefined])[] = [
  ["nothing", "true", undefined],
  ["iptables drops", "iptables-nft -P FORWARD DROP", "table ip filter, chain FORWARD"],
  [
    "iptables-legacy drops",
    "iptables-legacy -P FORWARD DROP",
    "iptables-legacy, table filter, chain FORWARD",
  ],
  [
    "a table drops what it does not accept",
    "nft 'table inet wall { chain ahead { type filter hook forward priority 10; policy drop; ct state established accept; jump inner; }; chain inner { oifname other0 accept; }; }'",
    "table inet wall, chain ahead",
  ],
  [
    "a table ends by rejecting",
    "nft 'table ip wall { chain ahead { type filter hook forward priority 10; policy accept; counter reject; }; }'",
    "table ip wall, chain ahead",
  ],
  [
    "a table drops but what goes there",
    "nft 'table inet wall { chain ahead { type filter hook forward priority 10; policy drop; ct state established accept; jump inner; }; chain inner { oifname hyper0 accept; }; }'",
    undefined,
  ],
  [
    "a table drops what comes to the host itself",
    "nft 'table inet wall { chain ahead { type filter hook input priority 10; policy accept; tcp dport 23 drop; }; }'",
    undefined,
  ],
];
const goAway =
  "iptables-nft -P FORWARD ACCEPT; iptables-legacy -P FORWARD ACCEPT; nft delete table inet wall; nft delete table ip wall; true";

test.serial(
  "chains of others that keep pods from being reached are found, and what helps helps",
  async (t) => {
    await using site = await FirewallSite.open({ firewall: "nftables", iptables: "auto" });
    const network = dualNetwork();
    await site.ensure(network);
    await site.pod(2);
    await site.ensure(dualPod(2, [published(2, 4, { hostPort: 8080, podPort: 80 })]));
    await site.serve("pod2", "tcp", 80);
    const found = async () => site.host.observe.obstacles([network], signal);
    for (const [what, command, where] of others) {
      await sh(`${command} 2>&1`);
      const obstacles = await found();
      t.deepEqual(
        obstacles.map((each) => each.where),
        where === undefined ? [] : [where],
        what,
      );
      const answer = await site.ask("outside", "tcp", outer, 8080);
      t.is(answer === reached, where === undefined, `${what}: ${answer}`);
      for (const { remedy, bridges } of obstacles) {
        t.deepEqual(bridges, [network.bridge]);
        await sh(remedy);
        t.is(await site.ask("outside", "tcp", outer, 8080), reached, `${what}, after: ${remedy}`);
        t.deepEqual(await found(), [], remedy);
      }
      await sh(`${goAway} 2>/dev/null; iptables-nft -F FORWARD; iptables-legacy -F FORWARD`);
    }
  },
);

test.serial(
  "with iptables' driver, whose rules are where those of others are, none are looked for",
  async (t) => {
    await using site = await FirewallSite.open({ iptables: "nft" });
    await sh("iptables-nft -P FORWARD DROP");
    t.deepEqual(await site.host.observe.obstacles([dualNetwork()], signal), []);
  },
);
