import test from "ava";
import { parseCidr, parseIp, parseIpPrefix } from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import { openHostNetwork } from "../../network/bridge/open-host-network.ts";
import { type HostNetwork } from "../../network/bridge/host-network.ts";
import type { FirewallName } from "../../network/firewall/open.ts";
import type { OverlayRuled } from "../../network/model/overlay.ts";
import { ownNetns } from "../lab/netns.ts";
import { ip, networkFragment } from "../lab/network.ts";

const { signal } = new AbortController();

const open = (firewall: FirewallName): HostNetwork =>
  openHostNetwork({ firewall, iptables: "nft", chain: "HYPER", hostSeed: "seed" });

const overlay = (more: Partial<OverlayRuled> = {}): OverlayRuled => ({
  name: "default",
  sides: [
    { network: parseCidr("10.77.0.0/16"), subnet: parseCidr("10.77.1.0/24") },
    { network: parseCidr("fd00:77::/48"), subnet: parseCidr("fd00:77:0:1::/64") },
  ],
  masquerade: { randomFully: true, except: [] },
  forward: true,
  ...more,
});

const network = networkFragment({
  gateways: [parseIpPrefix("10.77.1.1/24"), parseIpPrefix("fd00:77:0:1::1/64")],
  masquerade: [],
});

/** Everybody's rules, without what counts and dates. */
async function rules(): Promise<string> {
  const texts = [
    await run(["iptables-nft-save"]),
    await run(["ip6tables-nft-save"]),
    await run(["nft", "list", "ruleset", "inet"]),
  ];
  return texts
    .map(({ stdout }) => stdout.replaceAll(/^#.*\n/gm, "").replaceAll(/\[\d+:\d+\]/g, ""))
    .join("\n");
}

const drivers = ["iptables", "nftables"] as const;

for (const driver of drivers) {
  test.serial(
    `${driver}: an overlay's rules are made once, follow its network and switches, and go without a trace`,
    async (t) => {
      await ownNetns();
      await using host = open(driver);
      const rule = host.overlayRules;
      await host.apply(network, signal);
      const before = await rules();
      t.true((await rule.ensure(overlay(), signal)).length > 0);
      t.deepEqual(await rule.ensure(overlay(), signal), []);
      const whole = await rules();
      t.true(whole.includes("podnet:overlay:default"));
      // It alone: neither the network's rules nor another podnetd change it.
      t.deepEqual(changesText(await host.apply(network, signal)), []);
      await using later = open(driver);
      t.deepEqual(await later.overlayRules.diff(overlay(), signal), []);
      const former = overlay({
        sides: [{ network: parseCidr("10.88.0.0/16"), subnet: parseCidr("10.88.3.0/24") }],
        masquerade: { randomFully: false, except: [parseCidr("10.0.0.0/8")] },
        forward: false,
      });
      await rule.ensure(former, signal);
      const moved = await rules();
      t.notRegex(moved, /10\.77\.0\.0|fd00:77::\/48/);
      t.regex(moved, /10\.88\.3\.0/);
      t.deepEqual(await rule.diff(former, signal), []);
      await rule.ensure(overlay(), signal);
      t.is(await rules(), whole);
      // A second one alongside it, then alone.
      const blue = overlay({
        name: "blue",
        sides: [{ network: parseCidr("10.99.0.0/16"), subnet: parseCidr("10.99.1.0/24") }],
      });
      await rule.ensure(blue, signal);
      t.deepEqual(await rule.diff(overlay(), signal), []);
      t.deepEqual(await rule.diff(blue, signal), []);
      await rule.remove((name) => name === "blue", signal);
      t.is(await rules(), whole);
      await rule.remove(() => true, signal);
      t.is(await rules(), before);
      t.deepEqual(await rule.remove(() => true, signal), []);
    },
  );

  test.serial(
    `${driver}: pods of other hosts are let in, other addresses are not, and addresses are hidden outside alone`,
    async (t) => {
      await ownNetns();
      await using host = open(driver);
      await using site = await openSite();
      await host.apply(network, signal);
      await ip("link set podport master hyper0 up");
      const reaches = async (from: string, to: string): Promise<boolean> => {
        const asked = [
          "ip",
          "netns",
          "exec",
          from,
          "ping",
          "-n",
          "-c",
          "1",
          "-W",
          "1",
          to,
        ] as const;
        return run(asked).then(
          () => true,
          () => false,
        );
      };
      const see = async (): Promise<Readonly<Record<string, boolean>>> => ({
        peerToPod: await reaches(site.peer, "10.77.1.2"),
        podToPeer: await reaches(site.pod, "10.77.2.2"),
        outsideToPod: await reaches(site.outside, "10.77.1.2"),
        podToOutside: await reaches(site.pod, "198.51.100.9"),
        markedToOutside: await reaches(site.pod, "198.51.100.10"),
      });
      // A network alone: no new sender is let in, and no host outside knows the way back.
      t.like(await see(), { peerToPod: false, outsideToPod: false, podToOutside: false });
      await host.overlayRules.ensure(overlay(), signal);
      await markTraffic("198.51.100.10");
      // (What is marked leaves with its own address, to which no host outside knows the way.)
      t.deepEqual(await see(), {
        peerToPod: true,
        podToPeer: true,
        outsideToPod: false,
        podToOutside: true,
        markedToOutside: false,
      });
      // Isolated pods stay so, and are reached from other hosts.
      await host.apply({ ...network, isolated: true }, signal);
      t.true(await reaches(site.peer, "10.77.1.2"));
      const except = { randomFully: true, except: [parseCidr("198.51.100.0/24")] };
      await host.overlayRules.ensure(overlay({ masquerade: except }), signal);
      t.false(await reaches(site.pod, "198.51.100.9"));
      await run(["ip", "-n", site.outside, "route", "add", "10.77.1.0/24", "via", "198.51.100.1"]);
      t.true(await reaches(site.pod, "198.51.100.9"), "it is answered at the pod's own address");
    },
  );
}

for (const driver of drivers)
  test.serial(
    `${driver}: a host that sends by its own address is let in by the set alone, whatever mark its packets bear`,
    async (t) => {
      await ownNetns();
      await using host = open(driver);
      await using site = await openSite();
      await host.apply(network, signal);
      await ip("link set podport master hyper0 up");
      const reaches = (from: string): Promise<boolean> =>
        run(["ip", "netns", "exec", from, "ping", "-n", "-c", "1", "-W", "1", "10.77.1.2"]).then(
          () => true,
          () => false,
        );
      // Both send by their own addresses.
      await run(["ip", "-n", site.peer, "route", "del", "blackhole", "192.0.2.1/32"]);
      await run(["ip", "-n", site.peer, "route", "replace", "10.77.1.0/24", "via", "192.0.2.1"]);
      await run(["ip", "-n", site.outside, "route", "add", "10.77.1.0/24", "via", "198.51.100.1"]);
      const admitted = (...senders: string[]): OverlayRuled => {
        const [side] = overlay().sides as [OverlayRuled["sides"][0]];
        return overlay({ sides: [{ ...side, senders: senders.map((text) => parseIp(text)) }] });
      };
      await host.overlayRules.ensure(overlay(), signal);
      t.false(await reaches(site.peer), "with a tunnel for every peer");
      await host.overlayRules.ensure(admitted(), signal);
      t.false(await reaches(site.peer), "with an empty set");
      const change = { name: "default", family: 4, subnet: parseCidr("10.77.1.0/24") } as const;
      const peer = parseIp("192.0.2.2");
      await host.overlayRules.follow({ ...change, added: [peer], removed: [] }, signal);
      t.true(await reaches(site.peer));
      t.deepEqual(await host.overlayRules.diff(admitted("192.0.2.2"), signal), []);
      t.false(await reaches(site.outside));
      // Another program marks all that is forwarded.
      await run(["nft", "-f", "-"], {
        stdin: `table ip marker {
          chain c { type filter hook forward priority -150; meta mark set 0x1fff; }
          chain behind {
            type filter hook postrouting priority 300
            ip daddr 10.77.1.2 meta mark and 0x1fff == 0x0fff counter
            ip daddr 10.77.1.2 meta mark and 0x1000 == 0x1000 counter
          }
        }\n`,
      });
      t.false(await reaches(site.outside));
      t.true(await reaches(site.peer));
      const { stdout: behind } = await run(["nft", "list", "chain", "ip", "marker", "behind"]);
      const counted = [...behind.matchAll(/packets (\d+)/g)].map(([, packets]) => Number(packets));
      t.deepEqual(counted, [1, 0], "the packet goes on with its other marks alone");
      await host.overlayRules.follow({ ...change, added: [], removed: [peer] }, signal);
      t.false(await reaches(site.peer));
      await host.overlayRules.remove(() => true, signal);
      t.notRegex((await run(["nft", "list", "tables"])).stdout, /podnet_hosts/);
    },
  );

test.serial(
  "iptables: drift and what is made by hand in between are put right in one commit a table",
  async (t) => {
    await ownNetns();
    await using host = open("iptables");
    const rule = host.overlayRules;
    await rule.ensure(overlay(), signal);
    await host.apply(network, signal);
    const whole = await rules();
    const forwarded = await run(["iptables-nft", "-S", "FORWARD"]);
    t.deepEqual(
      forwarded.stdout.split("\n").flatMap((line) => /-j (\S+)$/.exec(line)?.[1] ?? []),
      // The overlay's way in, the network's three, and what flannel accepts.
      [
        forwarded.stdout.match(/PODNET-OVERLAY-\w{8}/)?.[0] ?? "",
        "ACCEPT",
        "HYPER",
        "ACCEPT",
        "ACCEPT",
        "ACCEPT",
      ],
    );
    for (const command of [
      "iptables-nft -t nat -F",
      "iptables-nft -D FORWARD 1",
      "iptables-nft -I FORWARD 1 -s 10.77.0.0/16 -m comment --comment podnet:overlay:default -j ACCEPT",
      "ip6tables-nft -t nat -F POSTROUTING",
    ]) {
      await run(command.split(" ") as [string, ...string[]]);
      const { length } = await rule.ensure(overlay(), signal);
      t.is(length, 1, command);
      await host.apply(network, signal);
      t.is(sorted(await rules()), sorted(whole), command);
      t.deepEqual(await rule.diff(overlay(), signal), [], command);
    }
    // A chain of an overlay's name that another program has filled.
    await rule.remove(() => true, signal);
    const chain = /PODNET-OVERLAY-\w{8}/.exec(whole)?.[0] ?? "";
    await run(["iptables-nft", "-N", chain]);
    await run(["iptables-nft", "-A", chain, "-p", "tcp", "-j", "DROP"]);
    await t.throwsAsync(rule.ensure(overlay(), signal), { code: "CHAIN_CONFLICT" });
  },
);

const sorted = (text: string): string => text.split("\n").toSorted().join("\n");

/** What is sent there from now on bears flannel's mark, as another program would set it. */
const markTraffic = (destination: string): Promise<unknown> =>
  run(["nft", "-f", "-"], {
    stdin: `table ip marker { chain c { type filter hook forward priority -150; ip daddr ${destination} meta mark set 0x4000; }; }\n`,
  });

/**
 * This namespace is the host; another host of the overlay, one outside of it, and a pod behind
 * `podport`.
 */
async function openSite(): Promise<
  AsyncDisposable & { readonly peer: string; readonly outside: string; readonly pod: string }
> {
  await using made = new AsyncDisposableStack();
  const names = {
    peer: `peer${process.pid}`,
    outside: `out${process.pid}`,
    pod: `pod${process.pid}`,
  };
  for (const name of Object.values(names)) {
    await ip(`netns add ${name}`);
    made.defer(() => ip(`netns del ${name}`).then(() => undefined));
  }
  const { peer, outside, pod } = names;
  const lines = (text: string, ...where: string[]): Promise<unknown> =>
    run(["ip", ...where, "-batch", "-"], { stdin: text });
  await lines(
    `link add eth0 type veth peer name eth0 netns ${peer}
link add eth1 type veth peer name eth0 netns ${outside}
link add podport type veth peer name eth0 netns ${pod}
addr add 192.0.2.1/24 dev eth0
link set eth0 up
addr add 198.51.100.1/24 dev eth1
link set eth1 up
route add 10.77.2.0/24 via 192.0.2.2
`,
  );
  // It answers only senders that use the pod's own address.
  await lines(
    `addr add 192.0.2.2/24 dev eth0
link set eth0 up
link set lo up
addr add 10.77.2.2/32 dev lo
route add 10.77.1.0/24 via 192.0.2.1 src 10.77.2.2
route add blackhole 192.0.2.1/32
`,
    "-n",
    peer,
  );
  await lines(
    `addr add 198.51.100.9/24 dev eth0
addr add 198.51.100.10/24 dev eth0
link set eth0 up
`,
    "-n",
    outside,
  );
  await lines(
    `addr add 10.77.1.2/24 dev eth0
link set eth0 up
route add default via 10.77.1.1
`,
    "-n",
    pod,
  );
  const owned = made.move();
  return { ...names, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}
