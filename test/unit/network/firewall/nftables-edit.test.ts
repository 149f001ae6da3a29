import test from "ava";
import fc from "fast-check";
import type { Ip, IpPrefix } from "../../../../core/address.ts";
import type { IfName } from "../../../../core/names.ts";
import { makeBase } from "../../../../network/firewall/nftables/base.ts";
import { diffElements } from "../../../../network/firewall/nftables/diff.ts";
import { commands } from "../../../../network/firewall/nftables/edit.ts";
import { networkElements, podElements } from "../../../../network/firewall/nftables/element.ts";
import { type Element, elementId, setNames } from "../../../../network/model/nftables-sets.ts";
import { networkFragment, podFragment, publishedPort } from "../../../lab/network.ts";

const dual = networkFragment({
  gateways: ["192.168.123.1/24" as IpPrefix, "fd00:123::1/64" as IpPrefix],
});

const added = (add: readonly Element[]): string[] => commands({ base: "keep", remove: [], add });

test("the table says the same of any number of networks and pods", (t) => {
  // (The version in comments changes with the rules.)
  const text = makeBase().map((line) => line.replaceAll(/table:[0-9a-f]{8}:/g, "table:VERSION:"));
  t.deepEqual(
    text.filter((line) => !line.startsWith("add set") && !line.startsWith("flush chain")),
    [
      "add table inet podnet",
      'add map inet podnet published4 { type inet_proto . ipv4_addr . inet_service : ipv4_addr . inet_service; comment "podnet:table:published4"; }',
      'add map inet podnet published6 { type inet_proto . ipv6_addr . inet_service : ipv6_addr . inet_service; comment "podnet:table:published6"; }',
      'add map inet podnet everywhere4 { type inet_proto . inet_service : ipv4_addr . inet_service; comment "podnet:table:everywhere4"; }',
      'add map inet podnet everywhere6 { type inet_proto . inet_service : ipv6_addr . inet_service; comment "podnet:table:everywhere6"; }',
      'add map inet podnet loopback4 { type inet_proto . ipv4_addr . inet_service : ipv4_addr . inet_service; comment "podnet:table:loopback4"; }',
      'add map inet podnet loopback6 { type inet_proto . ipv6_addr . inet_service : ipv6_addr . inet_service; comment "podnet:table:loopback6"; }',
      "add chain inet podnet forward { type filter hook forward priority 0; policy accept; }",
      "add chain inet podnet arriving",
      "add chain inet podnet prerouting { type nat hook prerouting priority -100; policy accept; }",
      "add chain inet podnet output { type nat hook output priority -100; policy accept; }",
      "add chain inet podnet published",
      "add chain inet podnet postrouting { type nat hook postrouting priority 100; policy accept; }",
      "add chain inet podnet overlays",
      ...Object.entries({
        forward: ["ct state established,related accept", "oifname @bridges jump arriving"],
        arriving: [
          "ct status dnat meta l4proto . ip daddr . th dport @opened4 accept",
          "ct status dnat meta l4proto . ip6 daddr . th dport @opened6 accept",
          "ct status dnat ip daddr @translated4 accept",
          "ct status dnat ip6 daddr @translated6 accept",
          "ct status dnat oifname @translating accept",
          "iifname . oifname @within accept",
          "iifname . oifname @apart drop",
          "ip saddr . oifname @admitting4 accept",
          "ip6 saddr . oifname @admitting6 accept",
          "ip saddr != @lease4 ip saddr . ip daddr @admitted4 accept",
          "ip6 saddr != @lease6 ip6 saddr . ip6 daddr @admitted6 accept",
          "ip daddr @lease4 meta mark and 0x1000 == 0x1000 accept",
          "ip6 daddr @lease6 meta mark and 0x1000 == 0x1000 accept",
          "drop",
        ],
        prerouting: ["fib daddr type local jump published"],
        output: [
          'oifname "lo" dnat ip to meta l4proto . ip daddr . th dport map @loopback4',
          'oifname "lo" dnat ip6 to meta l4proto . ip6 daddr . th dport map @loopback6',
          "ip daddr 127.0.0.0/8 return",
          "ip6 daddr ::1 return",
          "fib daddr type local jump published",
        ],
        published: [
          "dnat ip to meta l4proto . ip daddr . th dport map @published4",
          "dnat ip to meta l4proto . th dport map @everywhere4",
          "dnat ip6 to meta l4proto . ip6 daddr . th dport map @published6",
          "dnat ip6 to meta l4proto . th dport map @everywhere6",
        ],
        postrouting: [
          "ct status dnat ip saddr . oifname @own4 masquerade",
          "ct status dnat ip6 saddr . oifname @own6 masquerade",
          "ct status dnat ip saddr . oifname . ip daddr @hairpin4 masquerade",
          "ct status dnat ip6 saddr . oifname . ip6 daddr @hairpin6 masquerade",
          "ip saddr . oifname @own4 return",
          "ip6 saddr . oifname @own6 return",
          "ip saddr . iifname @masqueraded4 masquerade",
          "ip6 saddr . iifname @masqueraded6 masquerade",
          "jump overlays",
        ],
        overlays: [
          "meta mark and 0x4000 == 0x4000 return",
          "ip saddr . ip daddr @shown4 return",
          "ip saddr . ip daddr @trusted4 return",
          "ip saddr . ip daddr @inside4 return",
          "ip daddr @lease4 return",
          "ip saddr @randomly4 ip daddr != 224.0.0.0/4 masquerade fully-random",
          "ip saddr != @randomly4 ip daddr @randomly4 masquerade fully-random",
          "ip saddr @plainly4 ip daddr != 224.0.0.0/4 masquerade",
          "ip saddr != @plainly4 ip daddr @plainly4 masquerade",
          "ip6 saddr . ip6 daddr @shown6 return",
          "ip6 saddr . ip6 daddr @trusted6 return",
          "ip6 saddr . ip6 daddr @inside6 return",
          "ip6 daddr @lease6 return",
          "ip6 saddr @randomly6 ip6 daddr != ff00::/8 masquerade fully-random",
          "ip6 saddr != @randomly6 ip6 daddr @randomly6 masquerade fully-random",
          "ip6 saddr @plainly6 ip6 daddr != ff00::/8 masquerade",
          "ip6 saddr != @plainly6 ip6 daddr @plainly6 masquerade",
        ],
      }).flatMap(([chain, rules]) =>
        rules.map(
          (rule, i) =>
            `add rule inet podnet ${chain} ${rule} comment "podnet:table:VERSION:${chain}:${i}"`,
        ),
      ),
    ],
  );
});

test("a network is its bridge, whether its pods may talk, and its subnets", (t) => {
  const mark = 'comment "podnet:network:default"';
  t.deepEqual(added(networkElements(dual)), [
    `add element inet podnet bridges { "hyper0" ${mark} }`,
    `add element inet podnet within { "hyper0" . "hyper0" ${mark} }`,
    `add element inet podnet masqueraded4 { 192.168.123.0/24 . "hyper0" ${mark} }`,
    `add element inet podnet own4 { 192.168.123.0/24 . "hyper0" ${mark} }`,
    `add element inet podnet own6 { fd00:123::/64 . "hyper0" ${mark} }`,
  ]);
  const routed = networkFragment({ isolated: true, masquerade: [] });
  t.deepEqual(
    networkElements(routed).map(({ set }) => set),
    ["bridges", "apart", "own4"],
  );
  t.deepEqual(networkElements(networkFragment({ firewall: false })), []);
});

test("a published port is what leads there and what lets it in; what ports share is said once", (t) => {
  const pod = podFragment(2);
  const ports = [
    publishedPort(),
    publishedPort({ hostPort: 8081 }),
    publishedPort({ hostIp: "192.0.2.1" as Ip, protocol: "udp", hostPort: 53, podPort: 5353 }),
    publishedPort({
      protocol: "sctp",
      hostPort: 9000,
      podIp: "fd00:123::2" as Ip,
      podPort: 5000,
      count: 2,
    }),
  ];
  const mark = `comment "podnet:pod:${pod.key}"`;
  t.deepEqual(added(podElements({ ...pod, published: ports })), [
    `create element inet podnet published4 { 17 . 192.0.2.1 . 53 ${mark} : 192.168.123.2 . 5353 }`,
    `create element inet podnet everywhere4 { 6 . 8080 ${mark} : 192.168.123.2 . 80, 6 . 8081 ${mark} : 192.168.123.2 . 80 }`,
    `create element inet podnet everywhere6 { 132 . 9000 ${mark} : fd00:123::2 . 5000, 132 . 9001 ${mark} : fd00:123::2 . 5001 }`,
    `add element inet podnet opened4 { 6 . 192.168.123.2 . 80 ${mark}, 17 . 192.168.123.2 . 5353 ${mark} }`,
    `add element inet podnet opened6 { 132 . fd00:123::2 . 5000 ${mark}, 132 . fd00:123::2 . 5001 ${mark} }`,
  ]);
});

test("on a foreign bridge a pod answers for its own hairpin", (t) => {
  const pod = podFragment(2, { bridge: "lan0" });
  const [port] = pod.ports;
  const list = [publishedPort({ bridge: "lan0" as IfName })];
  const foreign = {
    ...pod,
    ports: port === undefined ? [] : [{ ...port, foreign: true as const }],
  };
  const keys = podElements({ ...foreign, published: list }).map(elementId);
  t.true(keys.includes('hairpin4 192.168.123.0/24 . "lan0" . 192.168.123.2'));
  const ours = podElements({ ...pod, published: list }).map(elementId);
  t.false(ours.some((key) => key.startsWith("hairpin4")));
});

const element = fc.record({
  set: fc.constantFrom(...setNames.filter((name) => /everywhere4|opened4|bridges/.test(name))),
  key: fc.constantFrom("1", "2", "3", "4"),
  value: fc.constantFrom("a", "b"),
  owner: fc.constantFrom("podnet:pod:a", "podnet:pod:b", undefined),
});
const asMap = (elements: readonly Element[]): Map<string, Element> =>
  new Map(elements.map((each) => [elementId(each), each]));

test("whatever there is, one edit makes it what an owner wants and leaves others' alone, or is refused", (t) => {
  fc.assert(
    fc.property(fc.array(element), fc.array(element), (there, wants) => {
      const before = asMap(there);
      const owner = "podnet:pod:a";
      const wanted = [...asMap(wants.map((each) => ({ ...each, owner }))).values()];
      const owned = [...before.values()].filter((each) => each.owner === owner);
      const present = (id: string): Element | undefined => before.get(id);
      let edit: ReturnType<typeof diffElements>;
      try {
        edit = diffElements({ wanted, owned, present });
      } catch {
        return wanted.some((each) => {
          const found = before.get(elementId(each));
          return each.set === "everywhere4" && found !== undefined && found.owner !== owner;
        });
      }
      const after = new Map(before);
      for (const each of edit.remove) if (!after.delete(elementId(each))) return false;
      for (const each of edit.add) {
        if (after.has(elementId(each))) return false;
        after.set(elementId(each), each);
      }
      const mine = [...after.values()].filter((each) => each.owner === owner);
      const others = [...before].filter(
        ([id, each]) =>
          each.owner !== owner && (each.set === "everywhere4" || !asMap(wanted).has(id)),
      );
      return (
        mine.length === wanted.length &&
        wanted.every((each) => after.get(elementId(each))?.value === each.value) &&
        others.every(([id, each]) => after.get(id) === each)
      );
    }),
  );
  t.pass();
});
