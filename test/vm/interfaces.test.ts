import type { ChildProcess } from "node:child_process";
import test, { type ExecutionContext } from "ava";
import { InterfaceState, type Pod } from "../../api/gen/podnet/v1/pod_pb.ts";
import { execIn, joinRig, type Rig } from "./daemon-rig.ts";

let rig: Rig;
test.serial.before(async () => {
  rig = await joinRig();
  await rig.lab.host.run("ip", "link", "add", "br9", "type", "bridge");
  await rig.lab.host.run("ip", "address", "add", "10.9.0.1/24", "dev", "br9");
  await rig.lab.host.run("ip", "link", "set", "br9", "up");
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const inPod = async (...words: readonly string[]): Promise<string> =>
  (await execIn(rig.client, "web", ...words)).output;
const interfaceOf = (pod: Pod | undefined, name: string) =>
  pod?.interfaces.find(({ guestName }) => guestName === name);
const bare = (address: string | undefined): string => address?.replace(/\/.*/, "") ?? "";

/** Pings of a flow that were sent, and the numbers of those that were answered. */
interface Flow {
  readonly sent: number;
  readonly back: readonly number[];
}

const everyMs = 20;

/** A flow of pings from the host that goes on until its figures are asked for. */
function flowTo(t: ExecutionContext, address: string): () => Promise<Flow> {
  const seconds = String(everyMs / 1000);
  const child: ChildProcess = rig.lab.host.spawn(["ping", "-n", "-i", seconds, address]);
  let output = "";
  child.stdout?.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const ended = new Promise((resolve) => child.once("exit", resolve));
  t.teardown(() => child.kill());
  return async () => {
    child.kill("SIGINT");
    await ended;
    const back = [...output.matchAll(/ icmp_seq=(\d+) .* time=/g)].map(([, nth]) => Number(nth));
    return { sent: Number(/(\d+) packets transmitted/.exec(output)?.[1]), back };
  };
}

/**
 * How a foreign link is set; not its timers, what a bridge takes from its ports, and what
 * each user of a tap sets.
 */
async function look(name: string): Promise<string> {
  const [link] = JSON.parse(
    await rig.lab.host.run("ip", "-d", "-j", "link", "show", name),
  ) as unknown[];
  const changing =
    /^(?:flags|operstate|qdisc|address|bridge_id|root_id|designated_\w+|tso_max_\w+|\w+_timer|vnet_hdr)$/;
  return JSON.stringify(link, (key, value: unknown) => (changing.test(key) ? undefined : value));
}

test.serial(
  "a flow on eth0 loses nothing while eth1 is added, changed and removed, and its own routes stay",
  async (t) => {
    const { client } = rig;
    const { pod } = await client.pods.create({ spec: { name: "web" } });
    const first = bare(pod?.interfaces[0]?.addresses[0]);
    await inPod("ip", "route", "add", "172.20.0.0/16", "via", "192.168.123.1");
    const routes = await inPod("ip", "route", "show", "dev", "eth0");
    t.regex(routes, /172\.20\.0\.0\/16 via 192\.168\.123\.1/);
    const count = flowTo(t, first);

    const added = await client.pods.addInterface({ idOrName: "web", interface: {} });
    const eth1 = interfaceOf(added.pod, "eth1");
    t.is(eth1?.state, InterfaceState.CONFIGURED);
    const second = bare(eth1?.addresses[0]);
    t.true(await rig.lab.host.reaches(second));

    const changed = await client.pods.updateInterface({
      idOrName: "web",
      guestName: "eth1",
      mtu: 1400,
      addresses: { addresses: ["192.168.123.77", "192.168.123.78"] },
      routes: { routes: [{ destination: "172.21.0.0/16", gateway: "192.168.123.1" }] },
    });
    t.deepEqual(interfaceOf(changed.pod, "eth1")?.observedAddresses, [
      "192.168.123.77/24",
      "192.168.123.78/24",
    ]);
    t.is(interfaceOf(changed.pod, "eth1")?.observedMtu, 1400);
    t.true(await rig.lab.host.reaches("192.168.123.78"));
    t.false(await rig.lab.host.reaches(second), "what it had before it has no more");
    t.regex(await inPod("ip", "route", "show", "dev", "eth1"), /172\.21\.0\.0\/16 via/);
    const { ok, checks } = await client.pods.verify({ idOrName: "web" });
    t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));

    await client.pods.updateInterface({
      idOrName: "web",
      guestName: "eth1",
      gateway: "192.168.123.1",
      metric: 50,
    });
    t.regex(
      await inPod("ip", "route", "show", "default"),
      /via 192\.168\.123\.1 dev eth1\s+metric 50/,
    );
    const removed = await client.pods.removeInterface({ idOrName: "web", guestName: "eth1" });
    t.is(removed.pod?.interfaces.length, 1);
    t.false(await rig.lab.host.reaches("192.168.123.78"));
    t.notRegex(await inPod("ip", "link"), /eth1/);
    const { sent, back } = await count();
    t.true(sent > 20, `${sent} were sent`);
    t.deepEqual(
      back,
      back.map((_, index) => index + 1),
      "the flow on eth0",
    );
    // A flow that died would have no gap either. Only the answers of the last 0.2 s may still be on
    // their way.
    t.true(sent - back.length <= 200 / everyMs, `${sent} sent, ${back.length} came back`);
    t.is(await inPod("ip", "route", "show", "dev", "eth0"), routes);
  },
);

test.serial(
  "addresses, routes, gateway and metric of IPv6 change in a running guest; a NIC has the MAC, tap and port asked for",
  async (t) => {
    const { client, lab } = rig;
    const subnets = [{ cidr: "10.30.0.0/24" }, { cidr: "fd00:30::/64" }];
    await client.networks.create({ spec: { name: "wide", subnets } });
    const mac = "52:54:00:12:34:56";
    const { pod } = await client.pods.addInterface({
      idOrName: "web",
      interface: { network: "wide", mac, tap: "web-wide", port: { isolated: true } },
    });
    const added = interfaceOf(pod, "eth1");
    t.like(added, { mac, tap: "web-wide", network: "wide", state: InterfaceState.CONFIGURED });
    t.is((await inPod("cat", "/sys/class/net/eth1/address")).trim(), mac);
    const ports = async (bridge: string): Promise<string> =>
      await lab.host.run("ip", "-d", "-o", "link", "show", "master", bridge);
    t.regex(await ports("pn-wide"), / web-wide: .* isolated on /);
    t.regex(await ports("hyper0"), / isolated off /);
    const [four = "", first = ""] = (added?.addresses ?? []).map(bare);
    for (const address of [four, first]) t.true(await lab.host.reaches(address));

    const routes = async (...which: readonly string[]): Promise<string> =>
      await inPod("ip", "-6", "route", "show", "dev", "eth1", ...which);
    const change = async (
      what: Partial<Parameters<typeof client.pods.updateInterface>[0]>,
    ): Promise<readonly string[] | undefined> =>
      interfaceOf(
        (await client.pods.updateInterface({ idOrName: "web", guestName: "eth1", ...what })).pod,
        "eth1",
      )?.observedAddresses;
    const via = { destination: "fd00:31::/48", gateway: "fd00:30::1" };
    const changed = await change({
      addresses: { addresses: [four, "fd00:30::77", "fd00:30::78"] },
      routes: { routes: [via] },
    });
    // (The kernel lists the newest of IPv6 first.)
    t.deepEqual([...(changed ?? [])].sort(), [`${four}/24`, "fd00:30::77/64", "fd00:30::78/64"]);
    const inGuest = await inPod("ip", "-6", "address", "show", "dev", "eth1");
    t.regex(inGuest, /fd00:30::77\/64/);
    t.regex(inGuest, /fd00:30::78\/64/);
    t.notRegex(inGuest, new RegExp(`${first}/`));
    for (const address of [four, "fd00:30::77", "fd00:30::78"])
      t.true(await lab.host.reaches(address), address);
    t.false(await lab.host.reaches(first), "what it had before it has no more");
    t.regex(await routes(), /^fd00:31::\/48 via fd00:30::1 /m);
    const byDefault = async (): Promise<readonly string[]> =>
      [...(await routes("default")).matchAll(/via (\S+) .*metric (\d+)/g)].map(
        ([, gateway, metric]) => `${gateway} ${metric}`,
      );
    // Metric 0 is 1024 to the kernel's IPv6.
    t.deepEqual(await byDefault(), ["fd00:30::1 1024"], "eth0 has none of IPv6");

    await inPod("ip", "-6", "route", "add", "fd00:99::/64", "via", "fd00:30::1");
    await change({ gateway: "fd00:30::fe", metric: 50 });
    t.deepEqual(await byDefault(), ["fd00:30::fe 50"]);
    const other = { gateway: "fd00:30::1", metric: 60 };
    await change({ ...other, routes: { routes: [{ ...via, destination: "fd00:32::/48" }] } });
    t.deepEqual(await byDefault(), ["fd00:30::1 60"]);
    t.notRegex(await routes(), /fd00:31::/);
    t.regex(await routes(), /^fd00:32::\/48 via fd00:30::1 /m);
    const { ok, checks } = await client.pods.verify({ idOrName: "web" });
    t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
    await change({ gateway: "", routes: { routes: [] } });
    t.deepEqual(await byDefault(), []);
    t.notRegex(await routes(), /fd00:32::/);
    t.regex(await routes(), /^fd00:99::\/64 via fd00:30::1 /m, "the guest's own");
    t.true(await lab.host.reaches("fd00:30::78"));

    await client.pods.removeInterface({ idOrName: "web", guestName: "eth1" });
    await client.networks.delete({ name: "wide" });
  },
);

test.serial(
  "two gateways of one family without different metrics are refused, and nothing changes",
  async (t) => {
    const before = await rig.client.pods.get({ idOrName: "web" });
    const error = await t.throwsAsync(
      rig.client.pods.addInterface({
        idOrName: "web",
        interface: { address: "192.168.123.60", gateway: "192.168.123.1" },
      }),
    );
    t.like(error, { code: "GATEWAY_CONFLICT" });
    t.deepEqual(
      (await rig.client.pods.get({ idOrName: "web" })).pod?.interfaces,
      before.pod?.interfaces,
    );
  },
);

test.serial("a plan of a change shows every effect and does nothing", async (t) => {
  const { plan, pod } = await rig.client.pods.addInterface({
    idOrName: "web",
    interface: { bridge: "br9", address: "10.9.0.5/24" },
    planOnly: true,
  });
  t.is(pod, undefined);
  t.deepEqual(
    plan?.sections.map(({ step }) => step),
    ["store.claim", "tap.open", "port.attach", "nic.plug", "guest.configure"],
  );
  t.is((await rig.client.pods.get({ idOrName: "web" })).pod?.interfaces.length, 1);
});

test.serial("a foreign bridge carries a pod's frames, and is what it was afterwards", async (t) => {
  const { client } = rig;
  const before = await look("br9");
  const { pod } = await client.pods.addInterface({
    idOrName: "web",
    interface: { bridge: "br9", address: "10.9.0.2/24", tap: "web-br9", guestName: "lan" },
  });
  t.like(interfaceOf(pod, "lan"), { bridge: "br9", network: "", tap: "web-br9" });
  await rig.lab.host.ping("10.9.0.2", 2);
  t.regex(await inPod("ping", "-c", "1", "-W", "2", "10.9.0.1"), /1 packets received/);
  t.notRegex(await look("br9"), /podnet|"group":"73"/);
  const { ok, checks } = await client.pods.verify({ idOrName: "web" });
  t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));

  // A port that another program takes off is put back; the bridge stays as it is.
  await rig.lab.host.run("ip", "link", "set", "web-br9", "nomaster");
  for (let waited = 0; waited < 100; waited++) {
    if (await rig.lab.host.reaches("10.9.0.2")) break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await rig.lab.host.ping("10.9.0.2");
  await rig.restart("kill");
  await rig.lab.host.ping("10.9.0.2");
  t.like(interfaceOf((await rig.client.pods.get({ idOrName: "web" })).pod, "lan"), {
    bridge: "br9",
    tap: "web-br9",
  });
  await rig.client.pods.removeInterface({ idOrName: "web", guestName: "lan" });
  t.false(await rig.lab.host.reaches("10.9.0.2"));
  t.is(await look("br9"), before);
});

test.serial("what cannot be attached to is refused with what is wrong", async (t) => {
  for (const [asked, code] of [
    [{ bridge: "br9" }, "INVALID_ARGUMENT"],
    [{ bridge: "none-such", address: "none" }, "BRIDGE_CONFLICT"],
    [{ bridge: "lan0", address: "none" }, "BRIDGE_CONFLICT"],
    [{ bridge: "hyper0", address: "none" }, "BRIDGE_CONFLICT"],
    [{ bridge: "br9", address: "none", port: { vlan: 7 } }, "BRIDGE_CONFLICT"],
    [{ tap: "none-such", tapKept: true, address: "none" }, "TAP_CONFLICT"],
    [{ tap: "lan0" }, "NAME_IN_USE"],
  ] as const)
    t.like(
      await t.throwsAsync(rig.client.pods.addInterface({ idOrName: "web", interface: asked })),
      { code },
      JSON.stringify(asked),
    );
});

test.serial("a foreign tap is used where it is, and is still there afterwards", async (t) => {
  const { host } = rig.lab;
  await host.run("ip", "tuntap", "add", "dev", "kept0", "mode", "tap");
  await host.run("ip", "link", "set", "kept0", "master", "br9", "up", "alias", "hers");
  const before = await look("kept0");
  const { pod } = await rig.client.pods.addInterface({
    idOrName: "web",
    interface: { tap: "kept0", tapKept: true, address: "10.9.0.3/24" },
  });
  t.like(pod?.interfaces[1], { tap: "kept0", bridge: "", state: InterfaceState.CONFIGURED });
  await host.ping("10.9.0.3", 2);
  const { ok, checks } = await rig.client.pods.verify({ idOrName: "web" });
  t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
  await rig.client.pods.delete({ idOrName: "web" });
  t.false(await host.reaches("10.9.0.3"));
  t.is(await look("kept0"), before);
  // A pod may be born with it, too, and on the bridge.
  await rig.client.pods.create({
    spec: {
      name: "web",
      interfaces: [
        {},
        { tap: "kept0", tapKept: true, address: "10.9.0.4/24" },
        { bridge: "br9", address: "10.9.0.6/24", port: { isolated: true, learning: false } },
        { loopback: true, addresses: ["10.7.0.1/32", "10.7.0.2/32"] },
      ],
    },
  });
  await host.ping("10.9.0.4");
  await host.ping("10.9.0.6");
  t.regex(
    await host.run("bridge", "-d", "link", "show"),
    /master br9.*\n.*learning off.*isolated on/,
  );
});

test.serial("addresses of lo answer, come and go, and there is no NIC for them", async (t) => {
  const { host } = rig.lab;
  const { pod } = await rig.client.pods.get({ idOrName: "web" });
  const lo = interfaceOf(pod, "lo");
  t.like(lo, { mac: "", tap: "", state: InterfaceState.CONFIGURED });
  const via = bare(pod?.interfaces[0]?.addresses[0]);
  for (const address of ["10.7.0.1", "10.7.0.2", "10.7.0.3"])
    await host.run("ip", "route", "add", address, "via", via);
  await host.ping("10.7.0.1");
  await host.ping("10.7.0.2");
  t.false(await host.reaches("10.7.0.3"));
  const differing = async (): Promise<string[]> => {
    const { checks } = await rig.client.pods.verify({ idOrName: "web" });
    t.true(checks.some(({ source }) => source === "guest"));
    return checks.filter(({ ok }) => !ok).map(({ subject, found }) => `${subject}: ${found}`);
  };
  t.deepEqual(await differing(), []);
  await execIn(rig.client, "web", "ip", "address", "del", "10.7.0.2/32", "dev", "lo");
  await execIn(rig.client, "web", "ip", "address", "add", "10.7.0.9/32", "dev", "lo");
  t.deepEqual(await differing(), [
    "address 10.7.0.2/32 on lo: no",
    "addresses on lo beyond the record: 10.7.0.9/32",
  ]);
  await execIn(rig.client, "web", "ip", "address", "del", "10.7.0.9/32", "dev", "lo");
  await rig.client.pods.updateInterface({
    idOrName: "web",
    guestName: "lo",
    addresses: { addresses: ["10.7.0.3/32"] },
  });
  await host.ping("10.7.0.3");
  t.false(await host.reaches("10.7.0.1"));
  await rig.client.pods.removeInterface({ idOrName: "web", guestName: "lo" });
  t.false(await host.reaches("10.7.0.3"));
  t.is(
    (await execIn(rig.client, "web", "ls", "/sys/class/net")).output.trim(),
    "eth0\neth1\neth2\nlo",
  );
});

test.serial(
  "a pod that does not run is not changed, and one that is started again has what it had",
  async (t) => {
    await rig.client.pods.removeInterface({ idOrName: "web", guestName: "eth1" });
    const { pod: before } = await rig.client.pods.get({ idOrName: "web" });
    await rig.client.pods.stop({ idOrName: "web" });
    for (const change of [
      () => rig.client.pods.addInterface({ idOrName: "web", interface: {} }),
      () => rig.client.pods.removeInterface({ idOrName: "web", guestName: "eth0" }),
      () => rig.client.pods.updateInterface({ idOrName: "web", guestName: "eth0", mtu: 1400 }),
    ]) {
      const error = await t.throwsAsync(change());
      t.like(error, { code: "WRONG_STATE" });
      t.regex(error?.message ?? "", /stopped/);
    }
    await rig.client.pods.start({ idOrName: "web" });
    const { pod } = await rig.client.pods.get({ idOrName: "web" });
    t.deepEqual(pod?.interfaces, before?.interfaces);
    await rig.lab.host.ping("10.9.0.6");
    await rig.client.pods.delete({ idOrName: "web" });
    t.regex(await look("kept0"), /"master":"br9"/);
  },
);
