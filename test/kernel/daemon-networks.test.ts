import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { openStage } from "../lab/networks-stage.ts";

const create = (podnet: Podnet, spec: object, more: object = {}) =>
  podnet.networks.create({
    spec: { name: "blue", subnets: [{ cidr: "10.20.0.0/24" }], ...spec },
    ...more,
  });

const refusal = async (work: Promise<unknown>): Promise<{ code: string; message: string }> => {
  try {
    await work;
  } catch (thrown) {
    return thrown as { code: string; message: string };
  }
  throw new Error("It was not refused");
};

test.serial(
  "a network comes with bridge, addresses and rules, is changed on the host at once, and goes without a trace",
  async (t) => {
    await using stage = await openStage();
    await stage.lab.host.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=0");
    const daemon = await stage.start();
    using podnet = connectPodnet({ socket: daemon.socket });
    const without = [await stage.addresses(), await stage.rules()];

    const spec = { subnets: [{ cidr: "10.20.0.0/24" }, { cidr: "fd00:20::/64" }], mtu: 1400 };
    const { network } = await create(podnet, spec);
    t.is(network?.bridge, "pn-blue");
    t.deepEqual(
      network?.subnets.map(({ gateway }) => gateway),
      ["10.20.0.1", "fd00:20::1"],
    );
    t.regex(await stage.ip("link", "show", "pn-blue"), /mtu 1400/);
    t.regex(
      await stage.ip("addr", "show", "dev", "pn-blue"),
      /inet 10\.20\.0\.1\/24[\s\S]*inet6 fd00:20::1\/64/,
    );
    t.regex(
      await stage.rules(),
      /-s 10\.20\.0\.0\/24 ! -o pn-blue .*podnet:network:blue.* -j MASQUERADE/,
    );
    t.deepEqual((await podnet.node.diff({})).parts.map(({ part }) => part).toSorted(), [
      "network blue",
      "network default",
    ]);
    t.false((await podnet.node.diff({})).drift);

    await podnet.networks.update({
      spec: {
        name: "blue",
        subnets: [{ cidr: "10.20.0.254/24" }],
        mtu: 1300,
        masquerade: false,
        isolated: true,
      },
    });
    t.regex(await stage.ip("link", "show", "pn-blue"), /mtu 1300/);
    const held = await stage.ip("addr", "show", "dev", "pn-blue");
    t.regex(held, /inet 10\.20\.0\.254\/24/);
    t.notRegex(held, /10\.20\.0\.1\/24|inet6/);
    t.notRegex(await stage.rules(), /10\.20\.0\.0\/24.*MASQUERADE/);
    t.false((await podnet.node.diff({})).drift);

    t.true((await podnet.networks.delete({ name: "blue" })).existed);
    t.false((await podnet.networks.delete({ name: "blue" })).existed);
    t.deepEqual([await stage.addresses(), await stage.rules()], without);
  },
);

test.serial(
  "what the host has already is not overlapped, by name, unless it is forced",
  async (t) => {
    await using stage = await openStage();
    await stage.ip("route", "add", "10.40.0.0/16", "via", "192.0.2.20");
    await stage.ip("route", "add", "unreachable", "10.50.1.0/24", "table", "77");
    await stage.ip("-6", "route", "add", "fd00:40::/48", "dev", "lan0");
    const daemon = await stage.start();
    using podnet = connectPodnet({ socket: daemon.socket });
    for (const [cidr, reported] of [
      ["10.40.7.0/24", /route 10\.40\.0\.0\/16 by "lan0"/],
      ["10.50.0.0/16", /route 10\.50\.1\.0\/24 unreachable/],
      ["192.0.2.128/25", /address 192\.0\.2\.1\/24 of "lan0"/],
      ["fd00:40:0:1::/64", /route fd00:40::\/48 by "lan0"/],
      ["192.168.0.0/16", /network "default" \(192\.168\.123\.0\/24\)/],
    ] as const) {
      const plan = await refusal(create(podnet, { subnets: [{ cidr }] }, { planOnly: true }));
      const { code, message } = await refusal(create(podnet, { subnets: [{ cidr }] }));
      t.is(code, "NETWORK_OVERLAP", cidr);
      t.regex(message, reported);
      t.is(plan.message, message);
    }
    t.notRegex(await stage.ip("-o", "link"), /pn-blue/);
    // Alongside them, and over one of them when forced; also after a restart.
    await create(podnet, { subnets: [{ cidr: "10.41.0.0/24" }] });
    await create(podnet, { name: "over", subnets: [{ cidr: "192.0.2.128/25" }] }, { force: true });
    t.regex(await stage.ip("addr", "show", "dev", "pn-over"), /192\.0\.2\.129\/25/);
    const moved = { spec: { name: "blue", subnets: [{ cidr: "10.40.7.0/24" }] } };
    t.is((await refusal(podnet.networks.update(moved))).code, "NETWORK_OVERLAP");
    t.regex(await stage.ip("addr", "show", "dev", "pn-blue"), /10\.41\.0\.1\/24/);
    await daemon.stop();
    await stage.ip("link", "del", "pn-over");
    const again = await stage.start();
    t.regex(await stage.ip("addr", "show", "dev", "pn-over"), /192\.0\.2\.129\/25/);
    t.notRegex(again.log(), /Failed to repair/);
  },
);

test.serial("what names and bridges stand for stays theirs", async (t) => {
  await using stage = await openStage();
  await stage.ip("link", "add", "name", "taken0", "type", "veth", "peer", "name", "taken1");
  const daemon = await stage.start();
  using podnet = connectPodnet({ socket: daemon.socket });
  await create(podnet, {});
  const other = { subnets: [{ cidr: "10.21.0.0/24" }] };
  t.is((await refusal(create(podnet, other))).code, "NAME_IN_USE");
  t.is(
    (await refusal(create(podnet, { ...other, name: "red", bridge: "pn-blue" }))).code,
    "NAME_IN_USE",
  );
  t.is((await refusal(create(podnet, { ...other, name: "default" }))).code, "NAME_IN_USE");
  const before = [await stage.addresses(), await stage.rules()];
  const wanted = { ...other, name: "red", bridge: "taken0" };
  const planned = await refusal(create(podnet, wanted, { planOnly: true }));
  const conflict = await refusal(create(podnet, wanted));
  t.is(conflict.code, "BRIDGE_CONFLICT");
  t.is(planned.message, conflict.message, "a plan says so, too");
  t.deepEqual([await stage.addresses(), await stage.rules()], before, "nothing is left of it");
  t.deepEqual(
    (await podnet.networks.list({})).networks.map(({ name }) => name),
    ["blue", "default"],
  );
  for (const work of [
    podnet.networks.delete({ name: "default" }),
    podnet.networks.update({ spec: { name: "default", subnets: [{ cidr: "10.9.0.0/24" }] } }),
  ])
    t.is((await refusal(work)).code, "WRONG_STATE");
  const renamed = { spec: { name: "blue", bridge: "br9", subnets: [{ cidr: "10.20.0.0/24" }] } };
  t.is((await refusal(podnet.networks.update(renamed))).code, "INVALID_ARGUMENT");
  t.is((await refusal(podnet.networks.get({ name: "red" }))).code, "NETWORK_NOT_FOUND");
});

test.serial(
  "what others do to a network that was made by API is reported and healed",
  async (t) => {
    await using stage = await openStage();
    const daemon = await stage.start("drift_s = 1\n");
    using podnet = connectPodnet({ socket: daemon.socket });
    await create(podnet, { isolated: true });
    await stage.ip("link", "set", "dev", "pn-blue", "mtu", "1280");
    await stage.lab.host.run("iptables", "-t", "nat", "-F", "POSTROUTING");
    for (let i = 0; i < 200; i++) {
      const { drift } = await podnet.node.diff({});
      const healed = daemon.log().match(/network blue: .*healed/g) ?? [];
      if (!drift && healed.length >= 1) break;
      await delay(50);
    }
    t.regex(daemon.log(), /"subject":"link pn-blue mtu","found":"1280","wanted":"1500".*healed/);
    t.regex(await stage.ip("link", "show", "pn-blue"), /mtu 1500/);
    t.regex(await stage.rules(), /-s 10\.20\.0\.0\/24 ! -o pn-blue .*MASQUERADE/);
    // One that was deleted is not healed.
    await podnet.networks.delete({ name: "blue" });
    await delay(2500);
    t.notRegex(await stage.ip("-o", "link"), /pn-blue/);
  },
);

test.serial(
  "what the host refuses half way leaves nothing, and what was there is as it was",
  async (t) => {
    await using stage = await openStage();
    // The default network's address is the first, that of the second try the third.
    const point = "netlink:add address to link:before";
    const daemon = await stage.start("", {
      PODNET_FAILPOINTS: `${point}#2=error;${point}#4=error`,
    });
    using podnet = connectPodnet({ socket: daemon.socket });
    const without = [await stage.addresses(), await stage.rules()];
    t.is((await refusal(create(podnet, {}))).code, "NETLINK_FAILED");
    t.deepEqual([await stage.addresses(), await stage.rules()], without);
    t.is((await podnet.networks.list({})).networks.length, 1);
    const { network } = await create(podnet, {});
    const before = [await stage.addresses(), await stage.rules()];
    const moved = { spec: { name: "blue", subnets: [{ cidr: "10.30.0.0/24" }], isolated: true } };
    t.is((await refusal(podnet.networks.update(moved))).code, "NETLINK_FAILED");
    t.deepEqual([await stage.addresses(), await stage.rules()], before);
    t.deepEqual((await podnet.networks.get({ name: "blue" })).network, network);
    await podnet.networks.update(moved);
    t.regex(await stage.ip("addr", "show", "dev", "pn-blue"), /10\.30\.0\.1\/24/);
    t.false((await podnet.node.diff({})).drift);
  },
);

test.serial("a change that the host refuses is taken back whole", async (t) => {
  await using stage = await openStage();
  await stage.ip("link", "add", "name", "br7", "type", "bridge");
  await stage.ip("addr", "add", "10.70.0.1/24", "dev", "br7");
  const daemon = await stage.start();
  using podnet = connectPodnet({ socket: daemon.socket });
  // A foreign bridge: podnet does not change its addresses.
  await create(podnet, { name: "seven", bridge: "br7", subnets: [{ cidr: "10.70.0.0/24" }] });
  const before = [await stage.addresses(), await stage.rules()];
  const moved = { spec: { name: "seven", subnets: [{ cidr: "10.71.0.0/24" }], isolated: true } };
  t.is((await refusal(podnet.networks.update(moved))).code, "BRIDGE_CONFLICT");
  t.deepEqual([await stage.addresses(), await stage.rules()], before);
  const { network } = await podnet.networks.get({ name: "seven" });
  t.like(network, { isolated: false, subnets: { 0: { cidr: "10.70.0.0/24" } } });
  t.false((await podnet.node.diff({})).drift);
  t.true((await podnet.networks.delete({ name: "seven" })).existed);
  t.regex(
    await stage.ip("addr", "show", "dev", "br7"),
    /10\.70\.0\.1\/24/,
    "an adopted bridge stays",
  );
});

test.serial(
  "a bridge filters VLANs where the kernel can, and where it cannot nothing is made",
  async (t) => {
    await using stage = await openStage();
    const probe = ["link", "add", "name", "probe0", "type", "bridge", "vlan_filtering", "1"];
    const can = await stage.ip(...probe).then(
      () => true,
      () => false,
    );
    const daemon = await stage.start();
    using podnet = connectPodnet({ socket: daemon.socket });
    const before = [await stage.addresses(), await stage.rules()];
    if (can) {
      t.true((await create(podnet, { vlanFiltering: true })).network?.vlanFiltering);
      t.regex(await stage.ip("-d", "link", "show", "pn-blue"), /vlan_filtering 1/);
      t.false((await podnet.node.diff({})).drift);
      await podnet.networks.update({ spec: { name: "blue", subnets: [{ cidr: "10.20.0.0/24" }] } });
      t.regex(await stage.ip("-d", "link", "show", "pn-blue"), /vlan_filtering 0/);
    } else {
      const spec = { name: "blue", subnets: [{ cidr: "10.20.0.0/24" }], vlanFiltering: true };
      const planned = podnet.networks.create({ spec, planOnly: true });
      t.is((await refusal(planned)).code, "UNSUPPORTED", "a plan as the create itself");
      t.is((await refusal(create(podnet, { vlanFiltering: true }))).code, "UNSUPPORTED");
      t.deepEqual([await stage.addresses(), await stage.rules()], before);
      await create(podnet, {});
      for (const planOnly of [true, false])
        t.is((await refusal(podnet.networks.update({ spec, planOnly }))).code, "UNSUPPORTED");
      t.false((await podnet.node.diff({})).drift);
    }
  },
);
