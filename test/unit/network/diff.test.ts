import test from "ava";
import * as fc from "fast-check";
import type { IpPrefix, Mac } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { IfName } from "../../../core/names.ts";
import { changesText } from "../../../network/bridge/change-text.ts";
import { portGroup } from "../../../network/model/desired.ts";
import { describeFragment } from "../../../network/bridge/describe.ts";
import { diffNetwork } from "../../../network/bridge/diff-network.ts";
import { bridgeMac } from "../../../network/model/bridge-mac.ts";
import { diffPod } from "../../../network/bridge/diff-pod.ts";
import type { ObservedLink, ObservedNetwork } from "../../../network/model/observed.ts";
import {
  chainMark,
  networkMark,
  ownedBy,
  parseOwner,
  podMark,
} from "../../../network/model/ownership.ts";
import { checkPortRoom } from "../../../network/model/port-limit.ts";
import { sweepLinks } from "../../../network/bridge/sweep.ts";
import { networkFragment, podFragment } from "../../lab/network.ts";

const link = (name: string, more: Partial<ObservedLink> = {}): ObservedLink => ({
  index: 7,
  name: name as IfName,
  kind: "bridge",
  alias: undefined,
  group: 0,
  mtu: 1500,
  up: true,
  mac: "52:54:00:00:00:07" as Mac,
  master: 0,
  vlanFiltering: undefined,
  isolated: undefined,
  ...more,
});

const ours = link("hyper0", {
  alias: "podnet:network:default",
  group: 73,
  mac: bridgeMac("seed", "hyper0" as IfName),
});

const settings = (acceptRa: string, disableIpv6: string): ReadonlyMap<string, string> =>
  new Map([
    ["net/ipv6/conf/hyper0/accept_ra", acceptRa],
    ["net/ipv6/conf/hyper0/disable_ipv6", disableIpv6],
  ]);

const observed = (more: Partial<ObservedNetwork> = {}): ObservedNetwork => ({
  bridge: undefined,
  addresses: [],
  linkNames: new Map(),
  ipForward: "1",
  settings: settings("0", "1"),
  pinned: false,
  ...more,
});

const at = (prefix: string, index = 7): ObservedNetwork["addresses"][number] => ({
  link: index,
  prefix: prefix as IpPrefix,
});

const text = (state: ObservedNetwork): string[] =>
  changesText(diffNetwork(networkFragment(), state, "seed"));

test("From states of the host to changes, golden", (t) => {
  const mac = bridgeMac("seed", "hyper0" as IfName);
  const held = [at("192.168.123.1/24")];
  t.deepEqual(text(observed({ ipForward: "0" })), [
    `link + hyper0 bridge mac ${mac} mtu 1500 group 73 alias podnet:network:default fdb_max_learned 4092 no_linklocal_learn on`,
    "sysctl + net/ipv6/conf/hyper0/accept_ra 0",
    "sysctl + net/ipv6/conf/hyper0/disable_ipv6 1",
    "address + 192.168.123.1/24 on hyper0",
    "link ~ hyper0 up",
    "sysctl ~ net.ipv4.ip_forward 0 → 1",
  ]);
  t.deepEqual(text(observed({ bridge: ours, addresses: held })), []);
  const adopted = { bridge: link("hyper0"), addresses: held, pinned: true };
  t.deepEqual(text(observed(adopted)), [], "adopted");
  t.deepEqual(
    text(observed({ ...adopted, bridge: link("hyper0", { up: false }), pinned: false })),
    [`link ~ hyper0 keeps mac ${link("hyper0").mac} (not ours)`, "link ~ hyper0 up (not ours)"],
  );
  t.deepEqual(
    text(
      observed({
        bridge: { ...ours, up: false, mtu: 1400, group: 0, mac: "52:54:00:00:00:01" as Mac },
        addresses: [at("10.0.0.1/24")],
        settings: settings("1", "0"),
      }),
    ),
    [
      `link ~ hyper0 mac ${mac} mtu 1500 group 73`,
      "sysctl ~ net/ipv6/conf/hyper0/accept_ra 1 → 0",
      "sysctl ~ net/ipv6/conf/hyper0/disable_ipv6 0 → 1",
      "address + 192.168.123.1/24 on hyper0",
      "link ~ hyper0 up",
    ],
  );
  t.deepEqual(
    text(observed({ bridge: { ...ours, alias: undefined }, addresses: held }))[0]?.split(
      " alias ",
    )[1],
    "podnet:network:default",
  );
});

test("What cannot be used is refused with the reason", (t) => {
  const refusals: readonly (readonly [ObservedNetwork, RegExp])[] = [
    [observed({ bridge: link("hyper0") }), /no such address/],
    [
      observed({ bridge: link("hyper0"), addresses: [at("192.168.123.1/16")] }),
      /mask.*192\.168\.123\.1\/16/,
    ],
    [
      observed({ bridge: link("hyper0"), addresses: [at("192.168.123.1/24", 8)] }),
      /no such address/,
    ],
    [observed({ bridge: link("hyper0", { kind: undefined }) }), /hardware/],
    [observed({ bridge: link("hyper0", { kind: "vlan" }) }), /vlan/],
    [
      observed({ bridge: link("hyper0", { alias: "podnet:pod:aaaaaaaaaaaa:0" }) }),
      /pod "aaaaaaaaaaaa"/,
    ],
    [observed({ addresses: [at("192.168.0.0/16", 3)] }), /overlaps/],
  ];
  for (const [state, reason] of refusals) {
    const error = t.throws(() => text(state), { message: reason });
    t.true(isPodnetError(error, "BRIDGE_CONFLICT"));
  }
});

test("A port is marked, cleared of its address's past and comes up last; when it is so, nothing is done", (t) => {
  const tap = link("tap2", { index: 9, kind: "tun", up: false });
  const pod = podFragment(2, { isolated: true, mtu: 1400 });
  const bridge = ["hyper0" as IfName, ours] as const;
  t.deepEqual(changesText(diffPod(pod, new Map([bridge, ["tap2" as IfName, tap]]))), [
    "link ~ tap2 mtu 1400 group 2036822107 alias podnet:pod:podaaaaaaaa2:0",
    "neighbour - 192.168.123.2 on hyper0",
    "port + tap2 on hyper0 isolated, then up",
  ]);
  const attached = {
    ...tap,
    alias: pod.ports[0]?.alias,
    group: portGroup("hyper0" as IfName),
    mtu: 1400,
    master: 7,
    up: true,
    vlanFiltering: undefined,
    isolated: true,
  };
  t.deepEqual(diffPod(pod, new Map([bridge, ["tap2" as IfName, attached]])), []);
});

test("The text of a pod's part, golden", (t) => {
  t.deepEqual(describeFragment(podFragment(2, { isolated: true }), "seed"), [
    "port tap2 on hyper0 isolated mtu 1500 group 2036822107 alias podnet:pod:podaaaaaaaa2:0 up",
  ]);
  t.is(describeFragment(networkFragment({ firewall: false, forward: false }), "seed").length, 2);
});

test("A sweep names only what bears our mark and has no row", (t) => {
  const links = [
    link("hyper0", { alias: "podnet:network:default", group: 73 }),
    link("old0", { alias: "podnet:network:old", group: 73 }),
    link("half0", { group: 73, mac: bridgeMac("seed", "half0" as IfName) }),
    link("theirs0", { group: 73 }),
    link("theirs", { group: 73, kind: "veth" }),
    link("eth0", { alias: "podnet" }),
    link("eth1", { alias: "podnet:network:a b" }),
    link("tap2", { alias: podMark("aaaaaaaaaaaa", 0), master: 7 }),
    link("tap3", { alias: podMark("bbbbbbbbbbbb", 1), master: 7 }),
  ];
  const known = { pods: new Set(["aaaaaaaaaaaa"]), networks: new Set(["default"]) };
  t.deepEqual(changesText(sweepLinks(links, known, "seed")), [
    "port - tap3",
    "link - old0",
    "link - half0",
    "link - tap3",
  ]);
  t.deepEqual(sweepLinks([], known, "seed"), []);
});

test("Marks are read back as they were written, and nothing else is a mark", (t) => {
  t.deepEqual(parseOwner(networkMark("my-net")), { kind: "network", key: "my-net" });
  t.deepEqual(parseOwner(podMark("abcdefghijkl", 3)), {
    kind: "pod",
    key: "abcdefghijkl",
    index: 3,
  });
  t.deepEqual(parseOwner(chainMark("HYPER")), { kind: "chain", key: "HYPER" });
  t.true(ownedBy(podMark("abcdefghijkl", 3), "pod", "abcdefghijkl"));
  t.false(ownedBy(podMark("abcdefghijkl", 3), "pod", "abcdefghijk"));
  for (const foreign of [
    undefined,
    "",
    "podnet",
    "podnet:",
    "podnet:pod:",
    " podnet:network:a",
    "podnet:network:a\n",
    "podnet:x:y",
  ])
    t.is(parseOwner(foreign), undefined);
  fc.assert(
    fc.property(fc.string(), (any) => {
      const owner = parseOwner(any);
      t.true(owner === undefined || any.startsWith("podnet:"));
    }),
  );
});

test("The bridge's MAC is one host's and one bridge's, and unicast", (t) => {
  const mac = bridgeMac("seed", "hyper0" as IfName);
  t.is(bridgeMac("seed", "hyper0" as IfName), mac);
  t.not(bridgeMac("other", "hyper0" as IfName), mac);
  t.not(bridgeMac("seed", "hyper1" as IfName), mac);
  t.regex(mac, /^52:54:/);
});

test("Room for ports is refused before it is over", (t) => {
  const bridge = "hyper0" as IfName;
  t.notThrows(() => checkPortRoom({ bridge, used: 1022, wanted: 1 }));
  t.true(
    isPodnetError(
      t.throws(() => checkPortRoom({ bridge, used: 1022, wanted: 2 })),
      "BRIDGE_FULL",
    ),
  );
});

test("a bridge is made to filter VLANs, and ours stops when it is not to any more", (t) => {
  const filtering = networkFragment({ vlanFiltering: true, firewall: false, forward: false });
  t.true(
    changesText(diffNetwork(filtering, observed(), "seed")).includes(
      "link ~ hyper0 vlan_filtering on up",
    ),
  );
  const held = { addresses: [at("192.168.123.1/24")], ipForward: "1" };
  const plain = observed({ bridge: { ...ours, vlanFiltering: false }, ...held });
  const set = observed({ bridge: { ...ours, vlanFiltering: true }, ...held });
  t.deepEqual(changesText(diffNetwork(filtering, plain, "seed")), [
    "link ~ hyper0 vlan_filtering on",
  ]);
  for (const bridge of [undefined, ours])
    t.throws(() => diffNetwork(filtering, observed({ bridge, canFilterVlans: false }), "seed"), {
      code: "UNSUPPORTED",
    });
  t.deepEqual(diffNetwork(filtering, set, "seed"), []);
  t.deepEqual(text(set), ["link ~ hyper0 vlan_filtering off"]);
  const others = link("hyper0", { vlanFiltering: false });
  t.throws(() => diffNetwork(filtering, observed({ bridge: others, ...held }), "seed"), {
    message: /does not filter VLANs/,
  });
});

test("a gateway of before leaves a bridge of ours before its successor comes; others' addresses stay", (t) => {
  const state = observed({
    bridge: ours,
    addresses: [at("192.168.123.254/24"), at("192.168.123.77/24")],
  });
  const retired = ["192.168.123.254/24", "10.9.9.1/24"] as IpPrefix[];
  t.deepEqual(changesText(diffNetwork(networkFragment({ retired }), state, "seed")), [
    "address - 192.168.123.254/24 on hyper0",
    "address + 192.168.123.1/24 on hyper0",
  ]);
  t.deepEqual(text(state), ["address + 192.168.123.1/24 on hyper0"]);
});

test("a bridge learns so many addresses at most, where the kernel knows a bound", (t) => {
  const learns = (most: number | undefined): string[] =>
    text(
      observed({ bridge: { ...ours, fdbMaxLearned: most }, addresses: [at("192.168.123.1/24")] }),
    );
  t.deepEqual(learns(0), ["link ~ hyper0 fdb_max_learned 4092"]);
  t.deepEqual(learns(4092), []);
  t.deepEqual(learns(undefined), []);
});

test("a bridge learns nothing from frames that it does not forward, where the kernel can", (t) => {
  const learns = (noLinkLocalLearn: boolean | undefined): string[] =>
    text(observed({ bridge: { ...ours, noLinkLocalLearn }, addresses: [at("192.168.123.1/24")] }));
  t.deepEqual(learns(false), ["link ~ hyper0 no_linklocal_learn on"]);
  t.deepEqual(learns(true), []);
  t.deepEqual(learns(undefined), []);
});

test("overlaps are refused unless they were allowed", (t) => {
  const state = observed({
    addresses: [at("192.168.0.1/16", 3)],
    linkNames: new Map([[3, "eth0"]]),
  });
  t.throws(() => text(state), { message: /overlaps 192.168.0.1\/16, which "eth0" has/ });
  t.notThrows(() => diffNetwork(networkFragment({ mayOverlap: true }), state, "seed"));
});

test("a port that is in other VLANs, or learns when it is not to, is put right; what is not asked for is left", (t) => {
  const fragment = podFragment(2);
  const ports = fragment.ports.map((port) => ({ ...port, vlan: 7, learning: false }));
  const attached = link("tap2", {
    index: 9,
    kind: "tun",
    alias: ports[0]?.alias,
    group: portGroup("hyper0" as IfName),
    master: 7,
    isolated: false,
  });
  const look = (more: Partial<ObservedLink>, wanted = { ...fragment, ports }): string[] => {
    const links = [ours, { ...attached, ...more }].map((each) => [each.name, each] as const);
    return changesText(diffPod(wanted, new Map(links)));
  };
  t.deepEqual(look({ vlan: 7, learning: false }), []);
  t.deepEqual(look({ vlan: 8, learning: true }, fragment as never), []);
  t.deepEqual(look({ vlan: 8, learning: false }), ["port ~ tap2 vlan 7"]);
  t.deepEqual(look({ learning: true }), ["port ~ tap2 learning off", "port ~ tap2 vlan 7"]);
  t.deepEqual(look({ master: 0 }), [
    "neighbour - 192.168.123.2 on hyper0",
    "port + tap2 on hyper0 without learning in vlan 7, then up",
  ]);
});
