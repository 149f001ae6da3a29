import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { openStage } from "../lab/networks-stage.ts";

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

/** As if podnetd had been cut short: a row says what was under way. */
function setRow(directory: string, sql: string): void {
  using db = new DatabaseSync(join(directory, "state", "state.db"));
  db.exec(sql);
}

/** A network "blue" that was made with 10.20.0.0/24 alone, and was being changed. */
function cutUpdateShort(directory: string): void {
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
    directory,
    `UPDATE networks SET state = 'updating', before = '${was}' WHERE name = 'blue'`,
  );
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
    cutUpdateShort(stage.directory);
    // Nor does it matter where that start is cut short.
    for (const point of ["commit:update networks:before#1", "commit:update networks:after#1"])
      await t.throwsAsync(
        stage.start("", { PODNET_FAILPOINTS: `${point}=kill` }),
        undefined,
        point,
      );
    const second = await stage.start();
    t.is(await second.podnet("network", "get", "blue"), shown);
    t.deepEqual([await stage.addresses(), await stage.rules()], before);
  },
);

test.serial(
  "a change that the host does not let a start take back is taken back when it does",
  async (t) => {
    await using stage = await openStage();
    const first = await stage.start();
    await first.podnet("network", "create", "blue", "--cidr", "10.20.0.0/24");
    const before = await stage.addresses();
    await first.podnet("network", "update", "blue", "--cidr", "10.30.0.0/24");
    await first.kill();
    cutUpdateShort(stage.directory);
    const refuses = { PODNET_FAILPOINTS: "netlink:delete address of link:before#1=error" };
    const second = await stage.start("drift_s = 3600\n", refuses);
    t.regex(second.log(), /Failed to repair the network; drift repair retries/);
    t.regex(await stage.addresses(), /10\.30\.0\.1/, "it is there still");
    t.regex(await second.podnet("network", "get", "blue"), /10\.20\.0\.0/);
    await second.kill();
    // By a start that may, or by the daemon itself.
    const third = await stage.start("drift_s = 3600\n", refuses);
    await stage.ip("link", "set", "pn-blue", "mtu", "1400");
    for (let i = 0; i < 100 && /10\.30\.0\.1/.test(await stage.addresses()); i++) await delay(100);
    t.is(await stage.addresses(), before);
    await third.kill();
    const last = await stage.start();
    t.is(await stage.addresses(), before);
    t.regex(await last.podnet("network", "list"), /blue/);
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
    t.regex(second.log(), /Failed to repair the network; drift repair retries/);
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
