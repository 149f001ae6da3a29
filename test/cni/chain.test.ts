/**
 * Debian's plugins before and after podnet's in one list: what goes together, and what is refused
 * with a reason.
 */
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import type { Machine } from "../lab/lab.ts";
import { type CniRig, joinCniRig } from "./cni-rig.ts";
import { addList, callPlugin, deleteList, type Plugin } from "./run-list.ts";

const leases = mkdtempSync(path.join(tmpdir(), "chain-"));

let cni: CniRig;
test.serial.before(async () => {
  cni = await joinCniRig();
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});

const call = (command: string, plugin: Plugin, container: Machine, more: object) =>
  callPlugin(cni, command, plugin, container, more);
const add = (list: readonly Plugin[], container: Machine) => addList(cni, list, container);
const del = (list: readonly Plugin[], container: Machine, result?: object) =>
  deleteList(cni, list, container, result);

const podnet: Plugin = { type: "podnet-cni" };
const bridge = (type: string): Plugin => ({
  type,
  ipam: { type: "host-local", subnet: "10.70.0.0/24", dataDir: leases },
});
const links = (): Promise<string> => cni.rig.lab.host.run("ip", "-o", "link", "show");

test.serial(
  "loopback before, and tuning, bandwidth, portmap and firewall after: each does its part, and gives it back",
  async (t) => {
    const { host } = cni.rig.lab;
    const container = await cni.container();
    const portMappings = [{ hostPort: 8085, containerPort: 80, protocol: "tcp" }];
    const sysctl = { "net.ipv4.conf.eth0.accept_redirects": "0" };
    const list: Plugin[] = [
      { type: "loopback" },
      podnet,
      { type: "tuning", sysctl },
      { type: "bandwidth", ingressRate: 8_000_000, ingressBurst: 8_000_000 },
      { type: "portmap", runtimeConfig: { portMappings } },
      { type: "firewall", backend: "iptables" },
    ];
    const before = await host.run("iptables-save");
    const { ends, result } = await add(list, container);
    t.deepEqual(
      ends.map(({ exit, stdout }) => (exit === 0 ? "" : stdout)),
      list.map(() => ""),
    );
    // Who comes later finds what was there, in its place; indexes still lead to it.
    const names = result.interfaces.map(({ name }: { name: string }) => name);
    t.deepEqual([names[0], names[1], names[3]], ["lo", "hyper0", "eth0"]);
    const own = result.ips.find(({ address }: { address: string }) =>
      address.startsWith("192.168."),
    );
    t.is(result.interfaces[own.interface].sandbox, container.path);
    await container.ping("192.168.123.1");
    t.regex(await container.run("ip", "link", "show", "lo"), /LOOPBACK,UP/);
    const redirects = ["cat", "/proc/sys/net/ipv4/conf/eth0/accept_redirects"] as const;
    t.is((await container.run(...redirects)).trim(), "0");
    t.regex(await host.run("tc", "qdisc", "show", "dev", names[2]), /tbf/);
    const rules = await host.run("iptables-save");
    const [address] = own.address.split("/");
    t.true(rules.includes(`--dport 8085 -j DNAT --to-destination ${address}:80`));
    // What a plugin after ours has set on our link is its own: neither taken away nor complained
    // of.
    t.is((await cni.rig.daemon.tryPodnet("diff")).exitCode, 0);
    const checked = await call("CHECK", podnet, container, { prevResult: result });
    t.like(checked, { exit: 0 }, checked.stdout);

    await del(list, container, result);
    t.false(await container.reaches("192.168.123.1"));
    await cni.converged();
    const left = await host.run("iptables-save");
    for (const mark of [address, "8085"])
      t.deepEqual([left.includes(mark), before.includes(mark)], [false, false], mark);
    t.notRegex(await links(), new RegExp(names[2]));
  },
);

for (const type of ["bridge", "ptp"])
  test.serial(`${type} before podnet-cni has the link already, and podnet says so`, async (t) => {
    const container = await cni.container();
    const list = [bridge(type), podnet];
    const { ends } = await add(list, container);
    t.deepEqual(
      ends.map(({ exit }) => exit),
      [0, 1],
    );
    t.is(ends[1]?.json.code, 105);
    t.regex(ends[1]?.json.msg, /plugin before podnet-cni has made "eth0"/);
    t.regex(ends[1]?.json.details, /^NAME_IN_USE prevResult\.interfaces: .*bridge, ptp/);
    // A runtime takes back all of a list that failed: ours has nothing, and spoils nothing.
    t.is((await call("DEL", podnet, container, {})).exit, 0);
    t.regex(await container.run("ip", "link", "show", "eth0"), /UP/);
    await del(list, container, ends[0]?.json);
    t.deepEqual(await cni.links(), []);
  });

test.serial("a link that no event reports is still found when it is in the way", async (t) => {
  const container = await cni.container();
  await container.run("ip", "link", "add", "eth0", "type", "bridge");
  const { ends } = await add([podnet], container);
  t.is(ends[0]?.exit, 1);
  t.regex(ends[0]?.stdout ?? "", /eth0/);
  t.regex(await container.run("ip", "-d", "link", "show", "eth0"), / bridge /);
  t.deepEqual(await cni.links(), []);
  await del([podnet], container);
  await container.run("ip", "link", "del", "eth0");
  t.is((await add([podnet], container)).ends[0]?.exit, 0);
  await del([podnet], container);
});

test.serial("bridge after podnet-cni refuses, and all of the list is taken back", async (t) => {
  const container = await cni.container();
  const list = [podnet, bridge("bridge")];
  const { ends } = await add(list, container);
  t.deepEqual(
    ends.map(({ exit }) => exit),
    [0, 1],
  );
  await del(list, container);
  t.false(await container.reaches("192.168.123.1"));
  await cni.converged();
  t.deepEqual(await cni.links(), []);
});
