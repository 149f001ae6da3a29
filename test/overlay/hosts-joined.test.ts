import test from "ava";
import { type HostsLab, dualOverlay, meet, openHosts } from "../lab/hosts.ts";
import type { Container } from "../lab/overlay-container.ts";
import { isAsFlannelLeavesIt } from "../lab/overlay-golden.ts";
import type { OverlayLabHost } from "../lab/overlay-host.ts";
import { until } from "../lab/until.ts";

const full = process.env["PODNET_TEST_FULL"] === "1";
let lab: HostsLab;
let hosts: readonly [OverlayLabHost, OverlayLabHost, OverlayLabHost];
let containers: readonly Container[];

/** A lease as another host's program would have put it; its host does not answer. */
const otherKey = "10.77.240.0-24&fd00:77:0:f0::-64";
const otherValue = JSON.stringify({
  PublicIP: "192.168.77.240",
  PublicIPv6: "fd77::f0",
  BackendType: "vxlan",
  BackendData: { VNI: 1, VtepMAC: "02:00:00:00:04:f0" },
  BackendV6Data: { VNI: 1, VtepMAC: "02:00:00:00:06:f0" },
});

const at = (key: string): string => `${lab.prefix}/subnets/${key}`;
const put = (key: string, value: string, ...words: readonly string[]): Promise<string> =>
  lab.etcd.etcdctl("put", ...words, at(key), value);
const del = (key: string): Promise<string> => lab.etcd.etcdctl("del", at(key));
const allAsFlannelLeavesThem = async (): Promise<void> => {
  await Promise.all(hosts.map((host) => isAsFlannelLeavesIt(lab, host)));
};

test.before(async () => {
  lab = await openHosts({ kinds: ["podnet", "flannel", "podnet"], overlay: dualOverlay });
  const [one, two, three] = lab.hosts as [OverlayLabHost, OverlayLabHost, OverlayLabHost];
  hosts = [one, two, three];
  await Promise.all(hosts.map((host) => host.start()));
  containers = await Promise.all(hosts.map((host) => host.container()));
});

test.after.always(async () => {
  await lab?.[Symbol.asyncDispose]();
});

test.serial("podnetd and flannel's stand-in cannot be told apart", async (t) => {
  await meet(containers);
  await allAsFlannelLeavesThem();
  for (const host of hosts) {
    const key = await lab.leaseOf(host);
    const { subnet = "", subnet6 = "" } = host.environment() ?? {};
    const parts = [subnet.replace(".1/", ".0-"), subnet6.replace("::1/", "::-")];
    t.is(key, parts.join("&"));
    const mac = async (device: string): Promise<string> =>
      /ether (\S+)/.exec(await host.machine.run("ip", "link", "show", device))?.[1] ?? "";
    t.is(
      (await lab.leases()).get(key ?? ""),
      `{"PublicIP":"${host.address}","PublicIPv6":"fd77::${host.n}","BackendType":"vxlan",` +
        `"BackendData":{"VNI":1,"VtepMAC":"${await mac("flannel.1")}"},` +
        `"BackendV6Data":{"VNI":1,"VtepMAC":"${await mac("flannel-v6.1")}"}}`,
    );
  }
});

test.serial(
  "Whatever etcd does, hosts that reach each other carry their pods' packets",
  async (t) => {
    const [one, two, three] = hosts;
    const [a, b, c] = containers as [Container, Container, Container];
    const pings = full ? 200 : 40;
    await lab.etcd.members[0]?.stop();
    const steady = [
      a.machine.ping(b.address, pings),
      b.machine.ping(c.address6 ?? "", pings),
      c.machine.ping(a.address, pings),
    ];
    await one.end("SIGKILL");
    await one.start();
    await three.end();
    await two.end("SIGKILL");
    for (const times of await Promise.all(steady)) t.is(times.length, pings);

    // The control: those who do not reach each other.
    await lab.underlay.cut(1, 2);
    t.false(await a.machine.reaches(b.address));
    t.true(await a.machine.reaches(c.address));
    await lab.underlay.mend(1, 2);

    lab.etcd.members[0]?.start();
    await lab.etcd.ready();
    await Promise.all([three.start(), two.start()]);
    await put(otherKey, otherValue);
    await meet(containers);
    await allAsFlannelLeavesThem();
    await del(otherKey);
    await allAsFlannelLeavesThem();
  },
);

test.serial("What others take from the tunnel comes back, the device with its MAC", async (t) => {
  const [one] = hosts;
  const shown = async (what: string): Promise<string> =>
    await one.machine.run(...(what.split(" ") as [string]));
  const indexAndMac = async (): Promise<readonly [string, string]> => {
    const text = await shown("ip -o link show flannel.1");
    return [/^(\d+):/.exec(text)?.[1] ?? "", /ether (\S+)/.exec(text)?.[1] ?? ""];
  };
  const [route = ""] = /^\S+ via .*/m.exec(await shown("ip route show dev flannel.1")) ?? [];
  const [neighbour = ""] =
    /^\S+/.exec(await shown("ip neigh show dev flannel.1 nud permanent")) ?? [];
  const [entry = ""] = /^\S+ dst \S+/m.exec(await shown("bridge fdb show dev flannel.1")) ?? [];
  // Each rejects where there is nothing to take.
  const [mac, ...rest] = entry.split(" ");
  await shown(`ip route del ${route.split(" ")[0]} dev flannel.1`);
  await shown(`ip neigh del ${neighbour} dev flannel.1`);
  await shown(`bridge fdb del ${mac} dev flannel.1 ${rest.join(" ")}`);
  await isAsFlannelLeavesIt(lab, one);
  const before = await indexAndMac();
  await shown("ip link del flannel.1");
  await isAsFlannelLeavesIt(lab, one);
  const after = await indexAndMac();
  t.not(after[0], before[0]);
  t.is(after[1], before[1]);
  await meet(containers);
});

test.serial("A peer whose MAC has changed leaves nothing of the old one behind", async (t) => {
  const [, two] = hosts;
  const before = await lab.leaseOf(two);
  await two.end();
  await two.machine.run("ip", "link", "del", "flannel.1");
  await two.start();
  await meet(containers);
  await allAsFlannelLeavesThem();
  t.is(await lab.leaseOf(two), before);
});

test.serial(
  "A lease that another client deleted is back with the same subnets, and podnetd goes on",
  async (t) => {
    const [one] = hosts;
    const key = await lab.leaseOf(one);
    await del(key ?? "");
    await until(
      "its lease",
      async () => (await lab.leaseOf(one)) === key,
      30_000,
      () => one.log(),
    );
    t.true(one.running);
    await meet(containers);
    await allAsFlannelLeavesThem();
  },
);

test.serial("Leases run out, and unreadable keys are left alone", async (t) => {
  const [one, two, three] = hosts;
  const lease = /^lease (\S+) granted/.exec(await lab.etcd.etcdctl("lease", "grant", "2"))?.[1];
  await put("10.77.241.0-24&fd00:77:0:f1::-64", "not JSON");
  await put("garbage", otherValue);
  await put(otherKey, otherValue, `--lease=${lease}`);
  // What came after the unreadable ones has come.
  const has = async (host: OverlayLabHost): Promise<boolean> =>
    (await host.machine.run("ip", "route")).includes("10.77.240.0/24");
  await until("the last to be heard", () => has(one));
  await until("it to run out", async () => !(await has(one)) && !(await has(three)));
  await until("no lease", async () => !(await lab.leases()).has(otherKey));
  // flanneld has lost all its routes meanwhile, which others cannot help.
  await del("garbage");
  await del("10.77.241.0-24&fd00:77:0:f1::-64");
  await two.end();
  await two.start();
  await meet(containers);
  await isAsFlannelLeavesIt(lab, one);
  await isAsFlannelLeavesIt(lab, three);
  t.true(one.running && three.running);
});

test.serial(
  "What changed while podnetd was away, or etcd had forgotten, is made up for",
  async (t) => {
    const [one, , three] = hosts;
    await put(otherKey, otherValue);
    await isAsFlannelLeavesIt(lab, one);
    await isAsFlannelLeavesIt(lab, three);
    await three.end("SIGKILL");
    await lab.underlay.cut(1, "store");
    await one.machine.run("ss", "-K", "dst", "192.168.77.250");
    const moved = otherValue.replaceAll(':f0"', ':f9"');
    t.not(moved, otherValue);
    await put(otherKey, moved);
    await lab.etcd.compactAll();
    await lab.underlay.mend(1, "store");
    await isAsFlannelLeavesIt(lab, one);
    await lab.underlay.cut(1, "store");
    await one.machine.run("ss", "-K", "dst", "192.168.77.250");
    await del(otherKey);
    await lab.etcd.compactAll();
    await three.start();
    await isAsFlannelLeavesIt(lab, three);
    await lab.underlay.mend(1, "store");
    // (flanneld keeps the entry of the old MAC.)
    await isAsFlannelLeavesIt(lab, one);
    t.true(one.running && three.running);
  },
);

test.serial(
  "A host that is given another address keeps its subnets, and is found there",
  async (t) => {
    const [one, , three] = hosts;
    const key = await lab.leaseOf(three);
    await three.machine.run("ip", "addr", "del", "192.168.77.3/24", "dev", "eth0");
    await three.machine.run("ip", "addr", "add", "192.168.77.33/24", "dev", "eth0");
    await until(
      "its lease to name the new address",
      async () => (await lab.leases()).get(key ?? "")?.includes('"PublicIP":"192.168.77.33"'),
      20_000,
      () => three.log(),
    );
    await meet(containers);
    t.is((await lab.leases()).size, 3);
    await isAsFlannelLeavesIt(lab, one);
    await isAsFlannelLeavesIt(lab, three);
  },
);

test.serial("A host that leaves takes its lease along, and the others forget it", async (t) => {
  const [one, two, three] = hosts;
  const subnet = three.environment()?.subnet.replace(".1/", ".0/") ?? "";
  await three.podnetd.podnet("overlay", "leave");
  t.is((await lab.leases()).size, 2);
  await isAsFlannelLeavesIt(lab, one);
  const routes = (): Promise<string> => two.machine.run("ip", "route", "show", "dev", "flannel.1");
  await until("flanneld to forget it", async () => !(await routes()).includes(subnet));
  t.regex(await routes(), / via /);
});
