import test from "ava";
import * as fc from "fast-check";
import {
  type Cidr,
  type Ip,
  type Mac,
  parseCidr,
  parseIp,
  parseMac,
} from "../../../../core/address.ts";
import {
  overlayChangeText,
  type PeerChange,
  type RouteTo,
} from "../../../../network/overlay/change.ts";
import type { IfName } from "../../../../core/names.ts";
import type {
  OverlayDesired,
  OverlayPeer,
  OverlayRuled,
  OverlaySide,
  PeerDelta,
} from "../../../../network/model/overlay.ts";
import { peerRefusal } from "../../../../network/model/refuse-peer.ts";
import { peersByKey, updatePeers } from "../../../../network/overlay/followed.ts";
import { overlayMtu } from "../../../../network/overlay/mtu.ts";
import { applyDelta, type SideStep } from "../../../../network/overlay/delta.ts";
import { planPeers } from "../../../../network/overlay/plan.ts";
import { ruledOverlay, senderChange } from "../../../../network/model/overlay-senders.ts";
import { outermost } from "../../../../network/firewall/traffic.ts";
import {
  type PeerTables,
  type WantedSide,
  wantedSide,
} from "../../../../network/overlay/wanted.ts";
import { overlayChain, overlayRules } from "../../../../network/firewall/iptables/overlay-rules.ts";
import { parseChainName, ruleText } from "../../../../network/firewall/iptables/rule.ts";
import { elementText } from "../../../../network/model/nftables-sets.ts";
import { overlayElements } from "../../../../network/firewall/nftables/element.ts";
import { senderElements } from "../../../../network/firewall/nftables/senders-table.ts";
import { deltaOf, overlayOf, peerOf, vxlan } from "../../../lab/overlay.ts";

const wantedOf = (desired: OverlayDesired, isDirect = false): WantedSide => {
  const [side] = desired.sides;
  if (side === undefined) throw new Error("No side");
  return wantedSide(desired, side, {
    parentMtu: 1500,
    deviceMac: undefined,
    isDirect: () => isDirect,
  });
};

const withPeers = (...peers: OverlayPeer[]): OverlayDesired => {
  const desired = overlayOf(1);
  return { ...desired, sides: desired.sides.map((side) => ({ ...side, peers })) };
};

test("a peer that would lead this host's own traffic, or more than its part, elsewhere is refused", (t) => {
  const good = peerOf(2);
  const reasonOf = (...peers: OverlayPeer[]): readonly string[] =>
    wantedOf(withPeers(...peers)).refused.map(({ reason }) => reason);
  t.deepEqual(reasonOf(good, peerOf(3)), []);
  t.deepEqual(
    reasonOf(
      good,
      { ...peerOf(3), subnet: parseCidr("0.0.0.0/0") },
      { ...peerOf(3), subnet: parseCidr("10.78.3.0/24") },
      { ...peerOf(3), subnet: parseCidr("10.76.0.0/14") },
      { ...peerOf(3), subnet: parseCidr("fd00:77:0:3::/64") },
      { ...peerOf(3), subnet: parseCidr("10.77.1.0/24") },
      { ...peerOf(3), subnet: parseCidr("10.77.1.128/25") },
      { ...peerOf(3), subnet: parseCidr("10.77.0.0/16") },
      { ...peerOf(3), publicIp: parseIp("192.0.2.1") },
      { ...peerOf(3), subnet: parseCidr("10.77.2.0/24") },
      { ...peerOf(3), subnet: parseCidr("10.77.2.0/25") },
      { ...peerOf(4), vtepMac: parseMac("02:00:00:00:04:02") },
      { ...peerOf(5), vtepMac: parseMac("01:00:5e:00:00:01") },
      { ...peerOf(6), vtepMac: parseMac("00:00:00:00:00:00") },
      { ...peerOf(7), vtepMac: parseMac("02:00:00:00:04:01") },
      { subnet: parseCidr("10.77.8.0/24"), publicIp: parseIp("192.0.2.8") },
      peerOf(9),
    ),
    [
      "0.0.0.0/0 is not in 10.77.0.0/16",
      "10.78.3.0/24 is not in 10.77.0.0/16",
      "10.76.0.0/14 is not in 10.77.0.0/16",
      "fd00:77:0:3::/64 is not in 10.77.0.0/16",
      "10.77.1.0/24 is this host's own",
      "10.77.1.128/25 is this host's own",
      "10.77.0.0/16 is this host's own",
      "192.0.2.1 is this host's own address",
      "10.77.2.0/24 is another peer's, too",
      "10.77.2.0 begins another peer's subnet, too",
      "02:00:00:00:04:02 is another peer's MAC, too",
      "01:00:5e:00:00:01 is no single host's MAC",
      "00:00:00:00:00:00 is no single host's MAC",
      "02:00:00:00:04:01 is this host's own MAC",
      "its end of the tunnel has no MAC",
    ],
  );
  // By the link's own way a peer needs no MAC.
  const direct = {
    ...withPeers({ ...good, vtepMac: undefined as never }),
    backend: { ...vxlan, directRouting: true },
  };
  t.deepEqual(wantedOf(direct, true).refused, []);
  t.is(wantedOf(direct, false).refused.length, 1);
});

test("a host with two leases has both; who excludes whom does not depend on the order", (t) => {
  const again = { ...peerOf(3), vtepMac: peerOf(2).vtepMac as Mac, publicIp: peerOf(2).publicIp };
  const both = wantedOf(withPeers(again, peerOf(2)));
  t.deepEqual(both.refused, []);
  t.deepEqual([...both.routes.keys()].toSorted(), [peerOf(2).subnet, again.subnet]);
  t.deepEqual([...both.fdb], [[peerOf(2).vtepMac, peerOf(2).publicIp]]);
  // The first lease ends: the end of the tunnel, which is the other's as well, stays.
  const desired = withPeers(again);
  const [side] = desired.sides as [OverlaySide];
  const around = { parentMtu: 1500, isDirect: () => false };
  const delta = { removed: [peerOf(2)], added: [] };
  const step = applyDelta(desired, side, around, both, delta, () => side.peers);
  t.deepEqual(planPeers(step.to, { ...step.from, strays: [] }).map(overlayChangeText), [
    "route - 10.77.2.0/24 via 10.77.2.0 dev flannel.1 onlink",
    "neighbour - 10.77.2.0 on flannel.1",
  ]);
  // One MAC at two addresses: the lower subnet has it, whoever was heard first.
  const other = { ...peerOf(4), vtepMac: peerOf(2).vtepMac as Mac };
  for (const peers of [
    [peerOf(2), other],
    [other, peerOf(2)],
  ]) {
    const { routes, refused } = wantedOf(withPeers(...peers));
    t.deepEqual([...routes.keys()], [peerOf(2).subnet]);
    t.is(refused[0]?.peer.subnet, other.subnet);
  }
});

test("an address that is no single host's is refused", (t) => {
  const bad = "224.0.0.5 239.255.0.1 127.0.0.1 127.9.9.9 255.255.255.255 0.0.0.0 0.1.2.3".split(
    " ",
  );
  const [side] = overlayOf(1).sides as [OverlaySide];
  const refusal = peerRefusal(side, new Set([parseIp("192.0.2.255")]));
  for (const ip of [...bad, "192.0.2.255", "ff02::1", "::", "::1"])
    t.is(refusal({ ...peerOf(2), publicIp: parseIp(ip) }), `${ip} is no address of a single host`);
  t.is(refusal({ ...peerOf(2), publicIp: parseIp("223.255.255.254") }), undefined);
  t.is(refusal({ ...peerOf(3), publicIp: parseIp("240.0.0.1") }), undefined);
  t.is(refusal({ ...peerOf(4), publicIp: parseIp("fd77::ff") }), undefined);
});

test("what fits is what the parent carries, less the headers of the family it goes by", (t) => {
  const of = (backend: OverlayDesired["backend"], families: readonly (4 | 6)[], parent: number) =>
    overlayMtu(backend, families, parent);
  t.is(of(vxlan, [4], 1500), 1450);
  t.is(of(vxlan, [6], 1500), 1430);
  t.is(of(vxlan, [4, 6], 1500), 1430);
  t.is(of({ ...vxlan, mtu: 1400 }, [4], 1500), 1350);
  t.is(of({ ...vxlan, mtu: 9000 }, [4], 1500), 1450, "no more than the parent has");
  t.is(of({ kind: "host-gw" }, [4, 6], 1500), 1500);
  t.is(of({ kind: "none" }, [4], 9000), 9000);
});

const network = fc.integer({ min: 2, max: 6 });
const tables = fc.record({
  neighbours: fc.array(fc.tuple(network, network)),
  fdb: fc.array(fc.tuple(network, network)),
  routes: fc.array(fc.tuple(network, network, fc.boolean())),
});
const ipOf = (n: number): Ip => parseIp(`10.77.${n}.0`);
const macOf = (n: number): Mac => parseMac(`02:00:00:00:04:0${n}`);
const cidrOf = (n: number): Cidr => parseCidr(`10.77.${n}.0/24`);

interface Tables extends PeerTables {
  readonly neighbours: Map<Ip, Mac>;
  readonly fdb: Map<Mac, Ip>;
  readonly routes: Map<Cidr, RouteTo>;
}

const inOrder = (table: ReadonlyMap<string, unknown>): unknown[] =>
  [...table].toSorted(([a], [b]) => a.localeCompare(b));

/** What a kernel does with a change. */
function apply(change: PeerChange, { neighbours, fdb, routes }: Tables): void {
  if (change.kind === "set-neighbour") neighbours.set(change.ip, change.mac);
  else if (change.kind === "remove-neighbour") neighbours.delete(change.ip);
  else if (change.kind === "set-fdb") fdb.set(change.mac, change.remote);
  else if (change.kind === "remove-fdb") fdb.delete(change.mac);
  else if (change.kind === "remove-route") routes.delete(change.destination);
  else {
    const { kind: _kind, ...route } = change;
    routes.set(change.destination, route);
  }
}

test("whatever there is of peers, the changes make it what is wanted; no route comes before what it needs", (t) => {
  fc.assert(
    fc.property(tables, fc.uniqueArray(network), (there, peers) => {
      const wanted = wantedOf(withPeers(...peers.map((n) => peerOf(n))));
      const observed: Tables = {
        neighbours: new Map(there.neighbours.map(([a, b]) => [ipOf(a), macOf(b)])),
        fdb: new Map(there.fdb.map(([a, b]) => [macOf(a), ipOf(b)])),
        routes: new Map(
          there.routes.map(([a, b, onlink]) => {
            const destination = cidrOf(a);
            return [
              destination,
              { destination, gateway: ipOf(b), link: "flannel.1" as never, onlink },
            ];
          }),
        ),
      };
      for (const change of planPeers(wanted, { ...observed, strays: [] })) {
        apply(change, observed);
        if (change.kind !== "set-route" || change.gateway === undefined) continue;
        const mac = observed.neighbours.get(change.gateway);
        if (mac === undefined || !observed.fdb.has(mac)) return false;
      }
      for (const table of ["neighbours", "fdb", "routes"] as const)
        t.deepEqual(inOrder(observed[table]), inOrder(wanted[table]));
      return planPeers(wanted, { ...observed, strays: [] }).length === 0;
    }),
  );
});

const anyPeer = fc.record({
  subnet: fc.constantFrom(...[2, 3, 4, 5].map(cidrOf), parseCidr("10.77.2.0/25")),
  publicIp: fc.constantFrom(...[2, 3, 4].map((n) => parseIp(`192.0.2.${n}`))),
  vtepMac: fc.constantFrom(...[2, 3, 4, 5].map(macOf)),
});
const anyBackend = fc.constantFrom<OverlayDesired["backend"]>(
  vxlan,
  { kind: "host-gw" },
  { kind: "udp", port: 8285 },
);

test("a delta of peers makes of what was wanted what a look at all of them would, whoever has what another has", (t) => {
  fc.assert(
    fc.property(
      anyBackend,
      fc.array(fc.array(fc.tuple(fc.nat(4), anyPeer)), { minLength: 2 }),
      (backend, times) => {
        const desired = { ...withPeers(), backend };
        const [side] = desired.sides as [OverlaySide];
        const around = { parentMtu: 1500, isDirect: () => false, tunnelDevice: "pn0" as IfName };
        const listed = new Map<number, OverlayPeer>();
        let wanted = wantedSide(desired, side, around);
        const admitted = new Set<Ip>();
        const changeOf = ({ from, to, wanted: { senders: all } }: SideStep) => ({
          from: from.senders,
          to: to.senders,
          all,
        });
        for (const changes of times) {
          const before = new Map(listed);
          // Whoever is named once more leaves.
          for (const [key, peer] of changes) if (!listed.delete(key)) listed.set(key, peer);
          const peers = [...listed.values()];
          const now = { ...side, peers };
          const differing = (some: typeof listed, others: typeof listed): OverlayPeer[] =>
            [...some].filter(([key, peer]) => others.get(key) !== peer).map(([, peer]) => peer);
          const delta = { removed: differing(before, listed), added: differing(listed, before) };
          const was = structuredClone(wanted);
          const step = applyDelta(desired, side, around, wanted, delta, () => peers);
          wanted = step.wanted;
          const whole = wantedSide(desired, now, around);
          t.deepEqual(wanted.refused, whole.refused);
          for (const ip of senderChange("default", now, changeOf(step))?.added ?? [])
            admitted.add(ip);
          for (const ip of senderChange("default", now, changeOf(step))?.removed ?? [])
            admitted.delete(ip);
          t.deepEqual([...admitted].toSorted(), [...new Set(whole.senders?.values())].toSorted());
          for (const table of ["neighbours", "fdb", "routes", "tunnel", "senders"] as const)
            t.deepEqual(inOrder(wanted[table] ?? new Map()), inOrder(whole[table] ?? new Map()));
          const from = step.from === wanted ? was : step.from;
          t.deepEqual(
            planPeers(step.to, { ...from, strays: [] })
              .map(overlayChangeText)
              .toSorted(),
            planPeers(whole, { ...was, strays: [] })
              .map(overlayChangeText)
              .toSorted(),
          );
        }
      },
    ),
  );
});

test("a delta that does not fit to the peers that are known is refused, and so are peers that look alike", (t) => {
  const peers = (): Map<string, OverlayPeer> => peersByKey([peerOf(2), peerOf(3)]) as never;
  const known = peers();
  t.true(updatePeers(known, { removed: [peerOf(2)], added: [peerOf(4)] }));
  t.deepEqual([...known.values()], [peerOf(3), peerOf(4)]);
  const moved = { ...peerOf(3), publicIp: peerOf(5).publicIp };
  t.true(updatePeers(known, { removed: [peerOf(3)], added: [moved] }));
  t.false(updatePeers(peers(), { removed: [peerOf(4)], added: [] }));
  t.false(updatePeers(peers(), { removed: [], added: [{ ...peerOf(2) }] }));
  t.is(peersByKey([peerOf(2), { ...peerOf(2) }]), undefined);
});

test("flannel's route to a peer that stays is taken over in its place, to one that has gone removed", (t) => {
  const wanted = wantedOf(withPeers(peerOf(2)));
  const stray = (n: number, metric = 0) => ({
    destination: cidrOf(n),
    gateway: ipOf(n),
    link: "flannel.1" as never,
    onlink: true,
    protocol: 3,
    metric,
  });
  const observed = { ...wanted, routes: new Map<Cidr, RouteTo>() };
  const strays = [stray(2), stray(2, 5), stray(3)];
  t.deepEqual(planPeers(wanted, { ...observed, strays }).map(overlayChangeText), [
    "route - 10.77.2.0/24 via 10.77.2.0 dev flannel.1 onlink",
    "route - 10.77.3.0/24 via 10.77.3.0 dev flannel.1 onlink",
    "route + 10.77.2.0/24 via 10.77.2.0 dev flannel.1 onlink",
  ]);
});

const ruled = (more: Partial<OverlayRuled> = {}): OverlayRuled => ({
  name: "default",
  sides: [{ network: parseCidr("10.77.0.0/16"), subnet: parseCidr("10.77.1.0/24") }],
  masquerade: { randomFully: true, except: [parseCidr("192.168.0.0/16")] },
  forward: true,
  ...more,
});

test("the rules of an overlay in iptables, golden: flannel's, and podnet's own before them", (t) => {
  const chain = overlayChain("default");
  const mark = "-m comment --comment podnet:overlay:default";
  t.deepEqual(overlayRules(ruled(), 4).map(ruleText), [
    `filter -A FORWARD ${mark} -j ${chain}`,
    `filter -A ${chain} -s 10.77.1.0/24 -d 10.77.1.0/24 ${mark} -j RETURN`,
    `filter -A ${chain} -s 10.77.0.0/16 -d 10.77.0.0/16 ${mark} -j ACCEPT`,
    `filter -A FORWARD -s 10.77.0.0/16 ${mark} -j ACCEPT`,
    `filter -A FORWARD -d 10.77.0.0/16 ${mark} -j ACCEPT`,
    `nat -A POSTROUTING ${mark} -j ${chain}`,
    `nat -A ${chain} -m mark --mark 0x4000/0x4000 ${mark} -j RETURN`,
    `nat -A ${chain} -s 10.77.0.0/16 -d 192.168.0.0/16 ${mark} -j RETURN`,
    `nat -A ${chain} -s 192.168.0.0/16 -d 10.77.0.0/16 ${mark} -j RETURN`,
    `nat -A ${chain} -s 10.77.1.0/24 -d 10.77.0.0/16 ${mark} -j RETURN`,
    `nat -A ${chain} -s 10.77.0.0/16 -d 10.77.1.0/24 ${mark} -j RETURN`,
    `nat -A ${chain} ! -s 10.77.0.0/16 -d 10.77.1.0/24 ${mark} -j RETURN`,
    `nat -A ${chain} -s 10.77.0.0/16 ! -d 224.0.0.0/4 ${mark} -j MASQUERADE --random-fully`,
    `nat -A ${chain} ! -s 10.77.0.0/16 -d 10.77.0.0/16 ${mark} -j MASQUERADE --random-fully`,
  ]);
  t.deepEqual(overlayRules(ruled(), 6), []);
  const { masquerade: _none, ...bare } = ruled({ forward: false });
  t.is(overlayRules(bare, 4).length, 3);
  const plain = overlayRules(ruled({ masquerade: { randomFully: false, except: [] } }), 4);
  t.false(plain.some(({ args }) => args.includes("--random-fully")));
  // Whatever it is called: of another's chains none can be, nor can what is configured.
  t.regex(overlayChain("a".repeat(63)), /^PODNET-OVERLAY-[0-9a-f]{8}$/);
  t.throws(() => parseChainName(chain), { code: "CONFIG_INVALID" });
});

test("hosts that send by their own addresses are let in where the backend has such hosts; a refused one is not", (t) => {
  const peers = [peerOf(2), { ...peerOf(3), subnet: parseCidr("10.78.3.0/24") }, peerOf(4)];
  const sendersBy = (backend: OverlayDesired["backend"]) =>
    ruledOverlay({ ...withPeers(...peers), backend }).sides[0]?.senders;
  const both = [peerOf(2).publicIp, peerOf(4).publicIp];
  t.deepEqual(sendersBy({ kind: "host-gw" }), both);
  t.deepEqual(sendersBy({ kind: "none" }), both);
  t.deepEqual(sendersBy({ ...vxlan, directRouting: true }), both);
  t.is(sendersBy(vxlan), undefined);
  t.is(sendersBy({ kind: "udp", port: 8285 }), undefined);
  const direct = ruledOverlay({ ...withPeers(...peers), backend: { kind: "host-gw" } });
  const [rule] = overlayRules(direct, 4).filter(({ args }) => args.includes("0x1000/0x1000"));
  t.is(
    rule && ruleText(rule),
    `filter -A ${overlayChain("default")} -d 10.77.1.0/24 -m mark --mark 0x1000/0x1000 -m comment --comment podnet:overlay:default -j ACCEPT`,
  );
  const mark = 'comment "podnet:overlay:default"';
  t.deepEqual(
    senderElements(direct).map((each) => `${each.set} ${elementText(each)}`),
    [`lease4 10.77.1.0/24 ${mark}`, ...both.map((ip) => `hosts4 ${ip} . 10.77.1.0/24 ${mark}`)],
  );
});

test("a host with two leases may send until the last of them has ended", (t) => {
  const [first, second] = [peerOf(2), { ...peerOf(3), publicIp: peerOf(2).publicIp }];
  const desired = { ...withPeers(first, second), backend: { kind: "host-gw" } as const };
  const around = { parentMtu: 1500, isDirect: () => true };
  const follow = (before: readonly OverlayPeer[], peers: readonly OverlayPeer[]) => {
    const [side] = desired.sides as [OverlaySide];
    const was = wantedSide(desired, { ...side, peers: before }, around);
    const now = { ...side, peers };
    const delta = deltaOf(withPeers(...before), withPeers(...peers)).get(4) as PeerDelta;
    const { from, to, wanted } = applyDelta(desired, now, around, was, delta, () => peers);
    const all = wanted.senders;
    return senderChange("default", now, { from: from.senders, to: to.senders, all });
  };
  t.like(follow([], [first]), { added: [first.publicIp], removed: [] });
  t.deepEqual(follow([first, second], [second])?.removed ?? [], []);
  t.like(follow([second], []), { added: [], removed: [first.publicIp] });
});

test("the elements of an overlay in nftables, golden", (t) => {
  const texts = overlayElements(ruled()).map((each) => `${each.set} ${elementText(each)}`);
  const mark = 'comment "podnet:overlay:default"';
  t.deepEqual(texts, [
    `lease4 10.77.1.0/24 ${mark}`,
    `admitted4 10.77.0.0/16 . 10.77.1.0/24 ${mark}`,
    `inside4 10.77.1.0/24 . 10.77.0.0/16 ${mark}`,
    `shown4 10.77.0.0/16 . 192.168.0.0/16 ${mark}`,
    `trusted4 192.168.0.0/16 . 10.77.0.0/16 ${mark}`,
    `randomly4 10.77.0.0/16 ${mark}`,
  ]);
  const { masquerade: _none, ...bare } = ruled();
  t.deepEqual(
    overlayElements(bare).map(({ set }) => set),
    ["lease4", "admitted4"],
  );
});

test("of exempt networks those within others say nothing", (t) => {
  const list = [
    "10.1.0.0/16",
    "10.0.0.0/8",
    "192.168.0.0/16",
    "10.0.0.0/8",
    "fd00::/8",
    "fd00:1::/32",
  ];
  t.deepEqual(outermost(list.map((text) => parseCidr(text))) as string[], [
    "10.0.0.0/8",
    "192.168.0.0/16",
    "fd00::/8",
  ]);
});
