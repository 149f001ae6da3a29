import test from "ava";
import type { IfName } from "../../core/names.ts";
import type { NetworkFragment, PodFragment, PortDesired } from "../../network/model/desired.ts";
import { podMark } from "../../network/model/ownership.ts";
import { driversUnderTest } from "../lab/firewall-drivers.ts";
import {
  blueAddresses,
  blueNetwork,
  bridgeNf,
  dualNetwork,
  dualPod,
  FirewallSite,
  hostAddresses,
  outsideAddress,
  podAddress,
  podMac,
} from "../lab/firewall-site.ts";
import { podIdOf } from "../lab/network.ts";

const twoDrivers = driversUnderTest.filter(({ name }) => name !== "iptables-legacy");

const { signal } = new AbortController();

const limited = (connections: number): NetworkFragment => dualNetwork({ connections });

/** Two pods of a network with this limit, and a machine outside that answers at port 80. */
async function openSite(
  options: (typeof driversUnderTest)[number]["options"],
  connections: number,
): Promise<FirewallSite> {
  const site = await FirewallSite.open(options);
  await site.ensure(limited(connections));
  for (const n of [2, 3]) {
    await site.pod(n);
    await site.ensure(dualPod(n));
    await site.serve(`pod${n}`, "tcp", 80);
  }
  for (const protocol of ["tcp", "udp"] as const) await site.serve("outside", protocol, 80);
  await site.serve("host", "tcp", 53);
  return site;
}

const flows = `${import.meta.dirname}/../lab/flows.py`;

/** Datagrams, each of them from another port. */
const openFlows = (
  site: FirewallSite,
  to: string,
  count: number,
  { port = 10_000, machine = "pod2" }: { readonly port?: number; readonly machine?: string } = {},
): Promise<string> => site.inside(machine, "python3", flows, to, `${count}`, `${port}`);

/** How many connections the host remembers. */
async function remembered(site: FirewallSite): Promise<number> {
  return Number(await site.inside("host", "cat", "/proc/sys/net/netfilter/nf_conntrack_count"));
}

/** What was refused of each tap, and why. */
const refusals = async (site: FirewallSite): Promise<string[]> =>
  (await site.host.observe.refusals(signal)).map(
    ({ link, kind, packets }) => `${link} ${kind} ${packets > 0}`,
  );

for (const { name, options } of driversUnderTest)
  for (const nf of name === "nftables" ? (["0", "1"] as const) : (["1"] as const))
    test.serial(
      `${name}, bridge-nf ${nf}: a pod has no more connections than its share, and its neighbour has its own`,
      async (t) => {
        await using site = await openSite(options, 512);
        bridgeNf(nf);
        t.regex(await site.talk("pod2", outsideAddress[4], 80), / 80$/);
        t.deepEqual(await refusals(site), []);
        await openFlows(site, outsideAddress[4], 1000);
        const held = await remembered(site);
        t.true(held > 500 && held < 540, `${held} connections`);
        t.deepEqual(await refusals(site), ["tap2 connections true"]);
        // Of both families, to wherever the host would remember it.
        for (const to of [outsideAddress[4], outsideAddress[6]])
          t.regex(await site.ask("pod2", "tcp", to, 80), /^(refused|E[A-Z]+)$/, to);
        t.is(await site.ask("pod2", "tcp", hostAddresses[4].gateway, 53), "refused");
        const between = await site.ask("pod2", "tcp", podAddress(3, 4), 80);
        t.regex(between, nf === "1" ? /^refused$/ : / 80$/, "between pods");
        t.regex(await site.heard("pod2", 80), / 80$/, "what it had goes on");
        // Its neighbour, and who asks it.
        for (const to of [outsideAddress[4], outsideAddress[6]])
          t.regex(await site.ask("pod3", "tcp", to, 80), / 80$/, to);
        t.regex(await site.ask("pod3", "tcp", hostAddresses[4].gateway, 53), / 53$/);
        t.regex(await site.ask("host", "tcp", podAddress(2, 4), 80), / 80$/);
        t.regex(await site.ask("pod3", "tcp", podAddress(2, 6), 80), / 80$/);
        await openFlows(site, outsideAddress[6], 1000, { machine: "pod3" });
        t.deepEqual((await refusals(site)).toSorted(), [
          "tap2 connections true",
          "tap3 connections true",
        ]);
      },
    );

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: a limit is changed while pods run, ends with their connections, and can be none`,
    async (t) => {
      await using site = await openSite(options, 512);
      const works = (): Promise<string> => site.ask("pod2", "tcp", outsideAddress[4], 80);
      await openFlows(site, outsideAddress[4], 700);
      t.is(await works(), "refused");
      await site.ensure(limited(2048));
      t.deepEqual(await site.host.diff(limited(2048), signal), []);
      t.regex(await works(), / 80$/);
      await openFlows(site, outsideAddress[4], 700, { port: 20_000 });
      t.regex(await works(), / 80$/);
      await site.ensure(limited(512));
      await openFlows(site, outsideAddress[4], 700, { port: 30_000 });
      t.is(await works(), "refused");
      // Connections that the host forgets are no longer counted.
      await site.host.remove({ kind: "connections", of: [dualPod(2)] }, signal);
      t.regex(await works(), / 80$/);
      await site.ensure(limited(0));
      await openFlows(site, outsideAddress[4], 1500, { port: 40_000 });
      t.regex(await works(), / 80$/);
      t.true((await remembered(site)) > 1500, "without a limit");
      // What others take away comes back.
      await site.ensure(limited(512));
      for (const harm of [
        "flush chain inet podnet_shares share",
        "flush set inet podnet_shares share512",
      ]) {
        await site.inside("host", "nft", ...harm.split(" "));
        t.not((await site.host.diff(limited(512), signal)).length, 0, harm);
        await site.ensure(limited(512));
        t.deepEqual(await site.host.diff(limited(512), signal), []);
      }
      await openFlows(site, outsideAddress[4], 700, { port: 50_000 });
      t.is(await works(), "refused");
      await site.host.remove({ kind: "everything" }, signal);
      t.notRegex(await site.inside("host", "nft", "list", "tables"), /podnet/);
    },
  );

/** The port of the machine `blue` in the network of that name, which has the same limit. */
async function openSecondPort(site: FirewallSite, alias: string): Promise<PortDesired> {
  const blue = { ...blueNetwork(), connections: 512 };
  await site.ensure(blue);
  await site.bluePod();
  return {
    tap: "tapblue" as IfName,
    bridge: blue.bridge,
    guestMac: podMac(200),
    guestAddresses: blueAddresses,
    alias,
    isolated: false,
    mtu: 1500,
  };
}

for (const { name, options } of twoDrivers)
  test.serial(
    `${name}: a pod with several interfaces has one share, which they use together`,
    async (t) => {
      const flood = async (site: FirewallSite): Promise<number> => {
        for (const machine of ["pod2", "blue"])
          await openFlows(site, outsideAddress[4], 600, { machine });
        return remembered(site);
      };
      // The control: two pods with an interface each have two shares.
      {
        await using site = await openSite(options, 512);
        const port = await openSecondPort(site, podMark(podIdOf(9), 0));
        await site.ensure({ kind: "pod", key: podIdOf(9), ports: [port] });
        const held = await flood(site);
        t.true(held > 1000 && held < 1060, `${held} connections of two pods`);
      }
      await using site = await openSite(options, 512);
      const pod = dualPod(2);
      const port = await openSecondPort(site, podMark(pod.key, 1));
      const ports = [...pod.ports, port].map((each): PortDesired => ({ ...each, sharing: true }));
      const both: PodFragment = { ...pod, ports };
      const each = ports.map((one): PodFragment => ({ ...both, ports: [one] }));
      // One by one or together, they come to one state.
      for (const fragment of [...each, both]) await site.ensure(fragment);
      for (const fragment of [...each, both])
        t.deepEqual(await site.host.diff(fragment, signal), []);
      const held = await flood(site);
      t.true(held > 500 && held < 540, `${held} connections of one pod`);
      for (const machine of ["pod2", "blue"])
        for (const to of [outsideAddress[4], outsideAddress[6]])
          t.regex(
            await site.ask(machine, "tcp", to, 80),
            /^(refused|E[A-Z]+)$/,
            `${machine} ${to}`,
          );
      // Its neighbour has its own share.
      t.regex(await site.ask("pod3", "tcp", outsideAddress[4], 80), / 80$/);
      t.deepEqual((await refusals(site)).toSorted(), [
        "tap2 connections true",
        "tapblue connections true",
      ]);
      // What others take away comes back.
      for (const harm of [
        "flush map inet podnet_shares sharing4",
        "delete table inet podnet_shares",
      ]) {
        await site.inside("host", "nft", ...harm.split(" "));
        await site.ensure(limited(512), { ...blueNetwork(), connections: 512 }, both);
        t.deepEqual(await site.host.diff(both, signal), []);
      }
      // An interface that goes takes its addresses along, and leaves the chain to the other one.
      const list = (): Promise<string> =>
        site.inside("host", "nft", "list", "table", "inet", "podnet_shares");
      await site.host.remove({ kind: "ports", pod: pod.key, tap: port.tap }, signal);
      const left = await list();
      t.regex(left, /chain share_/);
      t.notRegex(left, new RegExp(`"${port.bridge}" \\. `));
      // The other one has the share of its port from then on, and comes back to the pod's.
      await site.ensure(pod);
      t.notRegex(await list(), /share_/);
      t.deepEqual(await site.host.diff(pod, signal), []);
      await site.ensure(both);
      t.regex(await list(), /chain share_/);
      // The last one takes the chain along.
      for (const { tap } of ports)
        await site.host.remove({ kind: "ports", pod: pod.key, tap }, signal);
      t.notRegex(await list(), /share_/);
      await site.ensure(pod);
      t.deepEqual(await site.host.diff(pod, signal), []);
    },
  );

test.serial("what a pod is refused by the host is counted, for it alone", async (t) => {
  const driver = driversUnderTest.find(({ name }) => name === "nftables");
  if (driver === undefined) throw new Error("There is no such driver");
  await using site = await openSite(driver.options, 512);
  await site.ask("pod3", "tcp", hostAddresses[4].gateway, 53);
  t.deepEqual(await refusals(site), []);
  for (const address of [hostAddresses[4].gateway, hostAddresses[6].gateway])
    await site.ask("pod3", "tcp", address, 2222);
  const [found, ...others] = await site.host.observe.refusals(signal);
  t.deepEqual([found?.link, found?.kind, found?.packets, others], ["tap3", "host", 2, []]);
  // Another port of that name has none of it, and what was counted of the first one goes.
  const listed = (): Promise<string> =>
    site.inside("host", "nft", "list", "set", "inet", "podnet_guard", "refused");
  t.regex(await listed(), /counter packets 2/);
  await site.inside("host", "ip", "link", "delete", "tap3");
  t.deepEqual(await site.host.observe.refusals(signal), []);
  t.notRegex(await listed(), /counter packets/);
  await site.inside("host", "ip", "link", "add", "tap3", "type", "bridge");
  t.deepEqual(await site.host.observe.refusals(signal), []);
  t.deepEqual(await site.host.diff(limited(512), signal), []);
});
