import test from "ava";
import type { Cidr, Ip, IpPrefix } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";
import { writeSysctl } from "../../linux/sysctl.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import {
  fdbMaxLearned,
  type NetworkFragment,
  type PodFragment,
  type PortDesired,
} from "../../network/model/desired.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  outsideAddress,
  podAddress,
  podLinkLocal,
  podMac,
} from "../lab/firewall-site.ts";
import { frame } from "../lab/forged-frames.ts";
import { type Frame, heardWhile, sendFrames } from "../lab/frames.ts";

const twoDrivers = driversUnderTest.filter(({ name }) => name !== "iptables-legacy");

const { signal } = new AbortController();

const everybody4 = "ff:ff:ff:ff:ff:ff";
const everybody6 = "33:33:00:00:00:01";

async function macOf(site: FirewallSite, machine: string, link: string): Promise<string> {
  const shown = await site.inside(machine, "ip", "-o", "link", "show", link);
  return /link\/ether (\S+)/.exec(shown)?.[1] ?? "";
}

/** The default network without IPv6. */
const narrowNetwork = (more: Partial<NetworkFragment> = {}): NetworkFragment =>
  dualNetwork({
    gateways: ["192.168.123.1/24" as IpPrefix],
    masquerade: ["192.168.123.0/24" as Cidr],
    ...more,
  });

interface Stage {
  readonly site: FirewallSite;
  /** MACs of the bridge, and of pod 2. */
  readonly bridge: string;
  readonly pod: string;
}

async function openStage(
  options: (typeof driversUnderTest)[number]["options"],
  network: NetworkFragment,
): Promise<Stage & AsyncDisposable> {
  const site = await FirewallSite.open(options);
  await site.ensure(network);
  for (const n of [2, 3]) {
    await site.pod(n);
    await site.ensure(dualPod(n));
  }
  const bridge = await macOf(site, "host", "hyper0");
  const pod = await macOf(site, "pod2", "eth0");
  return { site, bridge, pod, [Symbol.asyncDispose]: () => site[Symbol.asyncDispose]() };
}

/** Which of pod 2's frames arrive; the last one has to. */
const arriving = (
  { site }: Stage,
  at: { readonly machine: string; readonly link: string },
  frames: readonly Frame[],
): Promise<string[]> =>
  heardWhile(
    { site, ...at },
    frames.map(({ text }) => text),
    () => sendFrames(site, "pod2", "eth0", frames),
  );

// (The rules are the same whichever driver writes the others.)
for (const { name, options } of driversUnderTest)
  for (const nf of name === "nftables" ? (["0", "1"] as const) : (["1"] as const))
    test.serial(
      `${name}, bridge-nf ${nf}: what calls itself by no address of its network neither leaves the host nor reaches it`,
      async (t) => {
        await using stage = await openStage(options, dualNetwork());
        bridgeNf(nf);
        const { site, bridge: dst, pod: src } = stage;
        const udp = [4000, 4001] as const;
        const from = (saddr: string, daddr: string, text: string): Frame => {
          return { dst, src, saddr, daddr, udp, text };
        };
        const to = (ip4: string, ip6: string): Frame[] => [
          from("203.0.113.9", ip4, "forged public"),
          from("192.0.2.1", ip4, "forged host"),
          from("0.0.0.0", ip4, "no sender"),
          { ...from("203.0.113.9", ip4, "forged and tagged"), vlans: [0] },
          from("2001:db8:2::20", ip6, "forged IPv6"),
          from(podAddress(2, 6), ip6, "true IPv6"),
          from(podAddress(2, 4), ip4, "true IPv4"),
        ];
        const outside = to(outsideAddress[4], outsideAddress[6]);
        const honest = ["true IPv6", "true IPv4"];
        t.deepEqual(
          await arriving(stage, { machine: "outside", link: "eth0" }, outside),
          honest,
          "outside",
        );
        // Whoever asks for an address has none.
        const dhcp: Frame = {
          ...from("0.0.0.0", "255.255.255.255", "asks for an address"),
          dst: everybody4,
          udp: [68, 67],
        };
        const local: Frame = from(podLinkLocal(2), podAddress(1, 6), "link-local");
        const here = [dhcp, local, ...to("192.168.123.1", podAddress(1, 6))];
        t.deepEqual(
          await arriving(stage, { machine: "host", link: "hyper0" }, here),
          [dhcp.text, local.text, ...honest],
          "the host itself",
        );
        // Neighbour discovery with and without an address of one's own.
        await site.inside("pod2", "ip", "-6", "neigh", "flush", "all");
        await site.inside("pod2", "ping", "-c1", "-W2", podAddress(1, 6));
        // (Without nodad the kernel makes it usable a little later, by a worker of its own.)
        const added = ["fd00:123::22/64", "dev", "eth0", "nodad"];
        await site.inside("pod2", "ip", "address", "add", ...added);
        await t.throwsAsync(
          site.inside("pod2", "ping", "-c1", "-W1", "-I", "fd00:123::22", podAddress(1, 6)),
          { message: /exit code 1/ },
          "it is sent, and not answered",
        );
        const [port] = dualPod(2).ports as [PortDesired];
        const guestAddresses = [...port.guestAddresses, "fd00:123::22/64" as IpPrefix];
        await site.ensure({ ...dualPod(2), ports: [{ ...port, guestAddresses }] });
        await site.inside("pod2", "ping", "-c1", "-W2", "-I", "fd00:123::22", podAddress(1, 6));
      },
    );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: an address that podnet gave a pod on lo is let through at its ports, and at no other's`,
    async (t) => {
      await using stage = await openStage(options, dualNetwork());
      const { site, bridge: dst } = stage;
      const given = { 4: "10.7.0.1" as Ip, 6: "fd07::1" as Ip };
      const withLo = (n: number): PodFragment => {
        const sources = Object.values(given).map((address) => ({
          tap: `tap${n}` as IfName,
          address,
        }));
        return { ...dualPod(n, []), sources };
      };
      const passing = (machine: "pod2" | "pod3"): Promise<string[]> => {
        const from = (saddr: string, daddr: string, text: string): Frame => {
          const src = podMac(machine === "pod2" ? 2 : 3);
          return { dst, src, saddr, daddr, udp: [4000, 4001], text };
        };
        const frames = [
          from(given[4], outsideAddress[4], "lo"),
          from(given[6], outsideAddress[6], "lo of IPv6"),
          from("10.7.0.2", outsideAddress[4], "forged"),
          from("fd07::2", outsideAddress[6], "forged IPv6"),
          from(podAddress(machine === "pod2" ? 2 : 3, 4), outsideAddress[4], "own"),
        ];
        return heardWhile(
          { site, machine: "outside", link: "eth0" },
          frames.map(({ text }) => text),
          () => sendFrames(site, machine, "eth0", frames),
        );
      };
      t.deepEqual(await passing("pod2"), ["own"]);
      await site.ensure(withLo(2));
      t.deepEqual(await site.host.diff(withLo(2), signal), []);
      t.deepEqual(await passing("pod2"), ["lo", "lo of IPv6", "own"]);
      t.deepEqual(await passing("pod3"), ["own"], "its neighbour");
      // Two pods may have one address: neither takes it from the other.
      await site.ensure(withLo(3));
      t.deepEqual(await site.host.diff(withLo(2), signal), []);
      t.deepEqual(await passing("pod3"), ["lo", "lo of IPv6", "own"]);
      await site.ensure({ ...withLo(2), sources: [] });
      t.deepEqual(await passing("pod2"), ["own"], "when they are taken back");
      t.deepEqual(await passing("pod3"), ["lo", "lo of IPv6", "own"], "who has it still");
      // What others take away is found, and comes back.
      await site.inside("host", "nft", "flush", "set", "bridge", "podnet", "addresses4");
      const found = await site.host.inspectRules(
        () => [withLo(2), withLo(3)],
        () => true,
        signal,
      );
      t.is(found.size, 2);
      t.deepEqual(await passing("pod3"), ["lo", "lo of IPv6", "own"], "after drift");
      await site.host.remove(withLo(3), signal);
      const left = await site.inside(
        "host",
        "nft",
        "list",
        "set",
        "bridge",
        "podnet",
        "addresses4",
      );
      t.regex(left, /tap2/);
      t.notRegex(left, /tap3/, "gone with the pod");
    },
  );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: no guest advertises routers, redirects, or answers as a DHCP server; others on the bridge do`,
    async (t) => {
      await using stage = await openStage(options, dualNetwork());
      const { site, pod: src } = stage;
      const six = (icmp: readonly [number, number], text: string): Frame => {
        return { dst: everybody6, src, saddr: podLinkLocal(2), daddr: "ff02::1", icmp, text };
      };
      const four4 = { dst: everybody4, src, saddr: podAddress(2, 4), daddr: "255.255.255.255" };
      const four = (udp: readonly [number, number], text: string): Frame => {
        return { ...four4, udp, text };
      };
      const wrong: Frame[] = [
        six([134, 0], "an advertisement, long enough"),
        six([137, 0], "a redirect, which is long enough as well"),
        four([67, 68], "a DHCP server's answer"),
        four([1067, 68], "one from another port"),
        { ...six([0, 0], "DHCPv6"), udp: [547, 546], text: "a DHCPv6 server's answer" },
        { ...four4, icmp: [5, 1], text: "a redirect of IPv4" },
        // Who gets it passes over a tag of VLAN 0.
        { ...six([134, 0], "an advertisement behind a tag"), vlans: [0] },
        { ...six([134, 0], "an advertisement behind two tags"), vlans: [0, 0] },
        { ...four([67, 68], "a DHCP server's answer behind a tag"), vlans: [0] },
      ];
      const right: Frame[] = [
        // (Of the length that it has to have.)
        six([135, 0], "neighbour soliciting"),
        four([68, 67], "a DHCP client's question"),
        four([5353, 5353], "any other datagram"),
      ];
      const at = { machine: "pod3", link: "eth0" };
      t.deepEqual(
        await arriving(stage, at, [...wrong, ...right]),
        right.map(({ text }) => text),
      );
      // A foreign port with a server behind it: an uplink.
      await site.inside("host", "ip", "link", "set", "tap2", "group", "0");
      t.deepEqual(
        await arriving(stage, at, [...wrong, ...right]),
        [...wrong, ...right].map(({ text }) => text),
        "a port that is not podnet's",
      );
      // Drift puts the port's group back, and the guard with it.
      await site.ensure(dualPod(2));
      t.deepEqual(
        await arriving(stage, at, [...wrong, ...right]),
        right.map(({ text }) => text),
      );
    },
  );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: on a network without IPv6 guests exchange none, and one that gets IPv6 lets it through`,
    async (t) => {
      await using stage = await openStage(options, narrowNetwork());
      const { site, pod: src } = stage;
      const dst = await macOf(site, "pod3", "eth0");
      const frames: Frame[] = [
        { dst, src, saddr: podLinkLocal(2), daddr: "fe80::3", udp: [9, 9], text: "link-local" },
        { dst, src, saddr: podAddress(2, 6), daddr: podAddress(3, 6), udp: [9, 9], text: "global" },
        {
          dst: everybody6,
          src,
          saddr: "::",
          daddr: "ff02::1",
          icmp: [143, 0],
          text: "to everybody",
        },
        {
          dst,
          src,
          saddr: podLinkLocal(2),
          daddr: "fe80::3",
          udp: [9, 9],
          text: "tagged",
          vlans: [0],
        },
        { dst, src, saddr: podAddress(2, 4), daddr: podAddress(3, 4), udp: [9, 9], text: "IPv4" },
      ];
      const at = { machine: "pod3", link: "eth0" };
      t.deepEqual(await arriving(stage, at, frames), ["IPv4"]);
      await site.ensure(dualNetwork());
      t.deepEqual(
        await arriving(stage, at, frames),
        frames.map(({ text }) => text),
      );
    },
  );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: the cloud's metadata are out of reach, unless the network is open to it; what the host has is not`,
    async (t) => {
      // Of the host's own, a resolver at such an address is opened as its other ports are.
      const network = (more: Partial<NetworkFragment> = {}): NetworkFragment =>
        dualNetwork({ hostAccess: [{ protocol: "tcp", first: 53, last: 53 }], ...more });
      await using stage = await openStage(options, network());
      const { site } = stage;
      const addresses = ["169.254.169.254", "fd00:ec2::254"];
      for (const ip of addresses) {
        const length = ip.includes(":") ? 128 : 32;
        await site.inside("outside", "ip", "address", "add", `${ip}/${length}`, "dev", "eth0");
        const via = ip.includes(":") ? outsideAddress[6] : outsideAddress[4];
        await site.inside("host", "ip", "route", "add", `${ip}/${length}`, "via", via);
      }
      // Of the host's own: a resolver of the node's, as Kubernetes has one.
      await site.inside("host", "ip", "address", "add", "169.254.20.10/32", "dev", "lo");
      await site.serve("outside", "tcp", 80);
      await site.serve("host", "tcp", 53);
      for (const ip of addresses)
        t.regex(await site.ask("pod2", "tcp", ip, 80), /^E(HOSTUNREACH|ACCES)$/, ip);
      for (const ip of [outsideAddress[4], outsideAddress[6]])
        t.regex(await site.ask("pod2", "tcp", ip, 80), / 80$/, ip);
      t.regex(await site.ask("pod2", "tcp", "169.254.20.10", 53), / 53$/);
      t.regex(await site.ask("host", "tcp", "169.254.169.254", 80), / 80$/, "the host itself");

      await site.ensure(network({ cloudMetadata: true }));
      for (const ip of addresses) t.regex(await site.ask("pod2", "tcp", ip, 80), / 80$/, ip);
      await site.ensure(network());
      for (const ip of addresses)
        t.regex(await site.ask("pod2", "tcp", ip, 80), /^E(HOSTUNREACH|ACCES)$/, ip);
    },
  );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: what is taken away of the guard comes back, and goes with the last network`,
    async (t) => {
      await using stage = await openStage(options, dualNetwork());
      const { site } = stage;
      const tables = async (): Promise<string[]> =>
        (await site.inside("host", "nft", "list", "tables"))
          .split("\n")
          .filter((line) => /bridge podnet|podnet_guard/.test(line));
      const both = ["table inet podnet_guard", "table bridge podnet"];
      t.deepEqual((await tables()).toSorted(), both.toSorted());
      t.deepEqual(await site.host.diff(dualNetwork(), signal), []);
      for (const harm of [
        ["delete", "table", "bridge", "podnet"],
        ["flush", "chain", "bridge", "podnet", "four"],
        ["flush", "set", "bridge", "podnet", "trunks"],
        ["delete", "table", "inet", "podnet_guard"],
        ["flush", "set", "inet", "podnet_guard", "no_metadata"],
      ]) {
        const before = await site.host.observe.fingerprint([dualNetwork()], signal);
        await site.inside("host", "nft", ...harm);
        t.not(await site.host.observe.fingerprint([dualNetwork()], signal), before, harm.join(" "));
        t.not((await site.host.diff(dualNetwork(), signal)).length, 0, harm.join(" "));
        await site.ensure(dualNetwork());
        t.deepEqual(await site.host.diff(dualNetwork(), signal), [], harm.join(" "));
      }
      for (const n of [2, 3]) await site.host.remove(dualPod(n), signal);
      await site.ensure(dualNetwork({ firewall: false }));
      t.deepEqual(await tables(), [], "a network without rules");
      await site.ensure(dualNetwork());
      t.is((await tables()).length, 2);
      await site.host.remove({ kind: "everything" }, signal);
      t.deepEqual(await tables(), []);
    },
  );

test.serial(
  "a guest that calls itself by MACs without number has its bridge learn so many, and no more",
  async (t) => {
    const learned = async (site: FirewallSite): Promise<number> =>
      (await site.inside("host", "bridge", "fdb", "show", "br", "hyper0"))
        .split("\n")
        .filter((line) => /dev tap2 master/.test(line) && !line.includes("permanent")).length;
    const [{ options }] = twoDrivers as [(typeof twoDrivers)[number]];
    await using stage = await openStage(options, dualNetwork());
    using netlink = Rtnetlink.open();
    const { site } = stage;
    // (A guarded one has no frame with another MAC taken.)
    const [port] = dualPod(2).ports as [PortDesired];
    await site.ensure({ ...dualPod(2), ports: [{ ...port, guard: "off" }] });
    const flood = async (): Promise<void> => {
      const frame = {
        dst: everybody4,
        src: "02:00:00:00:00:00",
        saddr: "0.0.0.0",
        daddr: "0.0.0.0",
      };
      const frames = [{ ...frame, udp: [9, 9] as const, text: "flood", sources: 6000 }];
      await sendFrames(site, "pod2", "eth0", frames);
    };
    await flood();
    const bound = await learned(site);
    t.true(bound <= fdbMaxLearned && bound > fdbMaxLearned - 10, `${bound}`);
    // Drift: without a bound all of them are learned, with it again none is more.
    const bridge = await netlink.link("hyper0");
    await netlink.changeBridge("hyper0", { fdbMaxLearned: 0 });
    t.deepEqual(changesText(await site.host.diff(dualNetwork(), signal)), [
      "link ~ hyper0 fdb_max_learned 4092",
    ]);
    await flood();
    t.true((await learned(site)) >= 6000, "as it was");
    await site.ensure(dualNetwork());
    t.is(bridge?.bridge?.fdbMaxLearned, fdbMaxLearned);
    t.deepEqual(await site.host.diff(dualNetwork(), signal), []);
  },
);

test.serial(
  "a bridge learns no MAC from a frame that it does not forward, such as LLDP's",
  async (t) => {
    const [{ options }] = twoDrivers as [(typeof twoDrivers)[number]];
    await using stage = await openStage(options, dualNetwork());
    using netlink = Rtnetlink.open();
    const { site } = stage;
    const learned = async (from: string): Promise<boolean> => {
      const lldp = frame({ dst: "01:80:c2:00:00:0e", src: from }, 0x88cc, Buffer.alloc(46), "LLDP");
      await sendFrames(site, "pod2", "eth0", [lldp]);
      const shown = await site.inside("host", "bridge", "fdb", "show", "br", "hyper0");
      return shown.includes(`${from} dev tap2 `);
    };
    t.false(await learned("02:00:00:00:00:01"));
    // The control, and drift.
    await netlink.changeBridge("hyper0", { noLinkLocalLearn: false });
    t.deepEqual(changesText(await site.host.diff(dualNetwork(), signal)), [
      "link ~ hyper0 no_linklocal_learn on",
    ]);
    t.true(await learned("02:00:00:00:00:02"), "a bridge as others make it");
    await site.ensure(dualNetwork());
    t.false(await learned("02:00:00:00:00:03"));
  },
);

test.after.always(() => writeSysctl("net.ipv6.conf.default.accept_dad", "1"));
