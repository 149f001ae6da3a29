import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { connectPodnet, type Podnet } from "../../api/client.ts";
import { type Lab, openLab } from "../lab/lab.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";

interface Stage extends AsyncDisposable {
  readonly lab: Lab;
  readonly directory: string;
  start(config?: string, env?: Readonly<Record<string, string>>): Promise<Podnetd>;
  /** What `ip` says there. */
  ip(...words: readonly string[]): Promise<string>;
  /** All addresses of all links. */
  addresses(): Promise<string>;
  rules(): Promise<string>;
}

let stages = 0;

/** A lab whose podnetd keeps its state from start to start. No pod is ever made here. */
async function openStage(): Promise<Stage> {
  await using opened = new AsyncDisposableStack();
  const lab = opened.use(await openLab(`n${process.pid}-${++stages}-`));
  const directory = mkdtempSync(join(tmpdir(), "podnet-networks-"));
  opened.defer(() => rmSync(directory, { recursive: true, force: true }));
  const held = opened.move();
  return {
    lab,
    directory,
    start: async (config = "", env = {}) =>
      held.use(await startPodnetd({ machine: lab.host, directory, config, env })),
    ip: (...words) => lab.host.run("ip", ...words),
    addresses: async () => (await lab.host.run("ip", "-o", "addr")).replaceAll(" tentative", ""),
    rules: async () => {
      const saved = [await lab.host.run("iptables-save"), await lab.host.run("ip6tables-save")];
      return saved.flatMap((text) => text.match(/^-A .*/gm) ?? []).join("\n");
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

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
    for (const [cidr, told] of [
      ["10.40.7.0/24", /route 10\.40\.0\.0\/16 by "lan0"/],
      ["10.50.0.0/16", /route 10\.50\.1\.0\/24 unreachable/],
      ["192.0.2.128/25", /address 192\.0\.2\.1\/24 of "lan0"/],
      ["fd00:40:0:1::/64", /route fd00:40::\/48 by "lan0"/],
      ["192.168.0.0/16", /network "default" \(192\.168\.123\.0\/24\)/],
    ] as const) {
      const plan = await refusal(create(podnet, { subnets: [{ cidr }] }, { planOnly: true }));
      const { code, message } = await refusal(create(podnet, { subnets: [{ cidr }] }));
      t.is(code, "NETWORK_OVERLAP", cidr);
      t.regex(message, told);
      t.is(plan.message, message);
    }
    t.notRegex(await stage.ip("-o", "link"), /pn-blue/);
    // Beside them, and over one of them when somebody wants it so; also after a restart.
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
    t.notRegex(again.log(), /cannot be put right/);
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
  const conflict = await refusal(create(podnet, { ...other, name: "red", bridge: "taken0" }));
  t.is(conflict.code, "BRIDGE_CONFLICT");
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

test.serial("a change that the host refuses is taken back whole", async (t) => {
  await using stage = await openStage();
  await stage.ip("link", "add", "name", "br7", "type", "bridge");
  await stage.ip("addr", "add", "10.70.0.1/24", "dev", "br7");
  const daemon = await stage.start();
  using podnet = connectPodnet({ socket: daemon.socket });
  // Somebody else's bridge: its addresses are not podnet's to change.
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
  "networks are there again after a restart, after their bridge was deleted, and gone after down",
  async (t) => {
    await using stage = await openStage();
    const first = await stage.start();
    const line =
      "network create blue --cidr 10.20.0.0/24 --cidr fd00:20::/64 --isolated --dns 192.0.2.53";
    await first.podnet(
      ...line.split(" "),
      "--range",
      "10.20.0.100-10.20.0.110",
      "--reserve",
      "10.20.0.105",
    );
    const shown = await first.podnet("network", "get", "blue", "-o", "json");
    await first.kill();
    await stage.ip("link", "del", "pn-blue");
    const second = await stage.start();
    t.is(await second.podnet("network", "get", "blue", "-o", "json"), shown);
    t.regex(await stage.ip("addr", "show", "dev", "pn-blue"), /10\.20\.0\.1\/24/);
    t.regex(await second.podnet("down", "--plan"), /link pn-blue/);
    await second.podnet("down", "--yes");
    t.notRegex((await stage.ip("-o", "link")) + (await stage.rules()), /pn-blue|podnet:/);
    const third = await stage.start();
    t.deepEqual(JSON.parse(await third.podnet("network", "list", "-o", "json")).items.length, 1);
  },
);

test.serial("what others do to a network that was made by API is told of and healed", async (t) => {
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
});

/** As if podnetd had been cut short: a row says what was under way. */
function setRow(directory: string, sql: string): void {
  using db = new DatabaseSync(join(directory, "state", "state.db"));
  db.exec(sql);
}

for (const state of ["creating", "deleting"] as const)
  test.serial(
    `a network that was ${state} when podnetd was cut short is gone after the next start`,
    async (t) => {
      await using stage = await openStage();
      const first = await stage.start();
      await first.podnet("network", "create", "blue", "--cidr", "10.20.0.0/24");
      await first.kill();
      setRow(stage.directory, `UPDATE networks SET state = '${state}' WHERE name = 'blue'`);
      const second = await stage.start();
      t.notRegex((await stage.ip("-o", "link")) + (await stage.rules()), /pn-blue/);
      t.notRegex(await second.podnet("network", "list"), /blue/);
      await second.podnet("network", "create", "blue", "--cidr", "10.20.0.0/24");
    },
  );

test.serial(
  "a network that was being changed when podnetd was cut short is what it was after the next start",
  async (t) => {
    await using stage = await openStage();
    const first = await stage.start();
    await first.podnet("network", "create", "blue", "--cidr", "10.20.0.0/24");
    const shown = await first.podnet("network", "get", "blue");
    const before = [await stage.addresses(), await stage.rules()];
    await first.podnet(
      "network",
      "update",
      "blue",
      "--cidr",
      "10.30.0.0/24",
      "--isolated",
      "--no-nat",
    );
    await first.kill();
    const was = JSON.stringify({
      subnets: [{ gateway: "10.20.0.1/24", ranges: [], reserved: [] }],
      mtu: 1500,
      dns: [],
      dnsSearch: [],
      masquerade: true,
      isolated: false,
      vlanFiltering: false,
      mayOverlap: false,
    });
    setRow(
      stage.directory,
      `UPDATE networks SET state = 'updating', before = '${was}' WHERE name = 'blue'`,
    );
    const second = await stage.start();
    t.is(await second.podnet("network", "get", "blue"), shown);
    t.deepEqual([await stage.addresses(), await stage.rules()], before);
  },
);

test.serial(
  "one network that the host refuses keeps podnetd from nothing else, and is healed when it can be",
  async (t) => {
    await using stage = await openStage();
    const first = await stage.start();
    await first.podnet("network", "create", "blue", "--cidr", "10.20.0.0/24");
    await first.kill();
    await stage.ip("link", "del", "pn-blue");
    await stage.ip("link", "add", "name", "pn-blue", "type", "veth", "peer", "name", "other");
    const second = await stage.start("drift_s = 1\n");
    t.regex(second.log(), /The network cannot be put right yet/);
    t.regex(await second.podnet("network", "list"), /blue/);
    await stage.ip("link", "del", "pn-blue");
    for (let i = 0; i < 100 && !/10\.20\.0\.1/.test(await stage.ip("-o", "addr")); i++)
      await delay(100);
    t.regex(await stage.ip("addr", "show", "dev", "pn-blue"), /10\.20\.0\.1\/24/);
  },
);

test.serial(
  "the default network gets a second subnet by configuration, and loses it again; without one no IPv6 is left",
  async (t) => {
    await using stage = await openStage();
    const disabled = async (): Promise<string> =>
      (await stage.lab.host.run("cat", "/proc/sys/net/ipv6/conf/hyper0/disable_ipv6")).trim();
    const first = await stage.start();
    t.is(await disabled(), "1");
    t.notRegex(await stage.ip("addr", "show", "dev", "hyper0"), /inet6/);
    await first.stop();
    const second = await stage.start('[network]\ncidr6 = "fd00:123::/64"\n');
    t.is(await disabled(), "0");
    t.regex(
      await stage.ip("addr", "show", "dev", "hyper0"),
      /192\.168\.123\.1\/24[\s\S]*fd00:123::1\/64/,
    );
    t.regex(await second.podnet("network", "list"), /fd00:123::\/64/);
    t.regex(await second.podnet("create", "--plan"), /192\.168\.123\.2\/24 fd00:123::2\/64/);
    await second.stop();
    const third = await stage.start();
    t.is(await disabled(), "1");
    t.notRegex(await stage.ip("addr", "show", "dev", "hyper0"), /inet6/);
    t.notRegex(await third.podnet("create", "--plan"), /fd00/);
  },
);

test.serial("a configuration does not take what a network made by API has", async (t) => {
  await using stage = await openStage();
  const first = await stage.start();
  await first.podnet("network", "create", "blue", "--cidr", "10.20.0.0/24");
  await first.stop();
  for (const config of ['[network]\nname = "blue"\n', '[network]\nbridge = "pn-blue"\n'])
    await t.throwsAsync(stage.start(config), { message: /was made by API/ });
  await stage.start();
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
      t.is((await refusal(create(podnet, { vlanFiltering: true }))).code, "UNSUPPORTED");
      t.deepEqual([await stage.addresses(), await stage.rules()], before);
      await create(podnet, {});
      const spec = { name: "blue", subnets: [{ cidr: "10.20.0.0/24" }], vlanFiltering: true };
      t.is((await refusal(podnet.networks.update({ spec }))).code, "UNSUPPORTED");
      t.false((await podnet.node.diff({})).drift);
    }
  },
);
