import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createConnection } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";
import test from "ava";
import { parseCidr, parseIpPrefix, parseMac } from "../../core/address.ts";
import { isPodnetError } from "../../core/errors.ts";
import { parseIfName, parseNetworkName, parsePodId } from "../../core/names.ts";
import type { PodPlan } from "../../daemon/pods/store/pod-plan.ts";
import type { Check } from "../../daemon/verify/check.ts";
import { comparePod } from "../../daemon/verify/compare.ts";
import type { NetworkDefinition } from "../../daemon/config/network-definition.ts";
import { expectedInterfaces } from "../../daemon/verify/expectation.ts";
import { queryHostSource } from "../../daemon/verify/query-host-source.ts";
import { queryVmSource, verifyPod } from "../../daemon/verify/verify-pod.ts";
import { vmSockets } from "../../hypervisor/driver.ts";
import { run } from "../../linux/processes/command.ts";
import { type NetworkFragment, portGroup } from "../../network/model/desired.ts";
import { ownNetns } from "../lab/netns.ts";

const podId = parsePodId("abcdefghijkl");
const bridge = parseIfName("hyper0");
const group = portGroup(bridge);
const tap = parseIfName(`pn${podId}0`);
const mac = parseMac("52:54:00:12:34:56");
const alias = `podnet:pod:${podId}:0`;
const address = parseIpPrefix("192.168.123.2/24");

const plan = {
  podId,
  name: "web",
  vm: {},
  interfaces: [
    {
      position: 0,
      network: "default",
      bridge,
      addresses: [address, parseIpPrefix("fd00:7::2/64")],
      mtu: 1400,
      guestName: "eth0",
      nic: { nicId: "nic0", netdevId: "net0", fdName: "fd0", tap, mac, slot: 1 },
    },
  ],
} as unknown as PodPlan;

const network: NetworkFragment = {
  kind: "network",
  key: parseNetworkName("default"),
  bridge,
  gateways: [parseIpPrefix("192.168.123.1/24"), parseIpPrefix("fd00:7::1/64")],
  mtu: 1500,
  masquerade: [parseCidr("192.168.123.0/24")],
  firewall: true,
  chain: "HYPER",
  forward: true,
};

const definition = {
  name: "default",
  mtu: 1400,
  isolated: true,
} as unknown as NetworkDefinition;

const around = {
  networks: { fragments: [network], definitions: [definition] },
  firewall: async () => "off" as const,
  sandboxes: { check: () => Promise.reject(new Error("No plugin has set it up")) },
};
const ip = (...args: string[]): Promise<unknown> => run(["ip", ...args]);
const differing = (checks: readonly Check[]): string[] =>
  checks.filter(({ ok }) => !ok).map((c) => `${c.subject}: ${c.found} instead of ${c.wanted}`);

/** Sends commands to a QMP socket, one after the other, and answers the replies. */
async function command(socketPath: string, ...commands: object[]): Promise<unknown[]> {
  const socket = createConnection(socketPath);
  const replies: unknown[] = [];
  const send = (each: object): boolean => socket.write(`${JSON.stringify(each)}\n`);
  const left = [{ execute: "qmp_capabilities" }, ...commands];
  for await (const line of createInterface({ input: socket })) {
    const message = JSON.parse(line) as { event?: string; QMP?: object };
    if (message.event !== undefined) continue;
    if (message.QMP === undefined) replies.push(message);
    const next = left.shift();
    if (next === undefined) break;
    send(next);
  }
  socket.destroy();
  return replies.slice(1);
}

let runDir = "";
let qemu = 0;
const vm = { socketPath: (which: keyof typeof vmSockets) => path.join(runDir, vmSockets[which]) };

test.serial.before(async () => {
  await ownNetns();
  // Longer than the 107 bytes of a socket address.
  runDir = path.join(await mkdtemp("/run/verify-"), "a".repeat(60), "b".repeat(60));
  await run(["mkdir", "-p", runDir]);
  const argv = [
    ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,tb-size=16", "-m", "64", "-S"],
    ["-nodefaults", "-no-user-config", "-display", "none", "-daemonize", "-pidfile", "qemu.pid"],
    ["-chardev", `socket,id=qmp,path=${vmSockets.qmp},server=on,wait=off`],
    ["-mon", "chardev=qmp,mode=control"],
    ["-chardev", `socket,id=verify,path=${vmSockets.verify},server=on,wait=off`],
    ["-mon", "chardev=verify,mode=control"],
    ["-device", "pcie-pci-bridge,id=br0,bus=pcie.0,addr=0x2"],
    ["-netdev", `tap,id=net0,ifname=${tap},script=no,downscript=no`],
    ["-device", `virtio-net-pci,id=nic0,netdev=net0,mac=${mac},bus=br0,addr=1`],
  ].flat();
  await run(["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", runDir, ...argv]);
  qemu = Number(await readFile(path.join(runDir, "qemu.pid"), "utf8"));
  await ip("link", "add", "name", bridge, "type", "bridge");
  await ip("address", "add", "192.168.123.1/24", "dev", bridge);
  await ip("address", "add", "fd00:7::1/64", "dev", bridge, "nodad");
  await ip("link", "set", "dev", bridge, "up");
  await ip("link", "set", "dev", tap, "master", bridge, "mtu", "1400", "group", `${group}`);
  await ip("link", "set", "dev", tap, "alias", alias);
  await ip("link", "set", "dev", tap, "type", "bridge_slave", "isolated", "on");
  await ip("link", "set", "dev", tap, "up");
});

test.serial.after.always(async () => {
  if (qemu !== 0) process.kill(qemu, "SIGKILL");
  if (runDir !== "") await rm(runDir, { recursive: true });
});

test.serial("a machine that does not run yet differs in just that", async (t) => {
  const { checks, ok } = await verifyPod({ plan, vm }, AbortSignal.timeout(30_000), around);
  t.false(ok);
  t.deepEqual(differing(checks), ["vm status: prelaunch instead of running"]);
});

test.serial("a pod that is as recorded is found so, by both sources", async (t) => {
  process.chdir(runDir);
  await command(vmSockets.qmp, { execute: "cont" });
  // The daemon's monitor is taken meanwhile: the source has one of its own.
  const holder = createConnection(vmSockets.qmp);
  process.chdir("/");
  const result = await verifyPod({ plan, vm }, AbortSignal.timeout(30_000), around);
  holder.destroy();
  t.deepEqual(differing(result.checks), []);
  t.true(result.ok);
  t.is(result.podId, podId);
  const subjects = result.checks.map(({ subject, source }) => `${source} ${subject}`);
  for (const subject of [
    `netlink link ${tap} master`,
    `netlink address fd00:7::1/64 on ${bridge}`,
    `netlink route 192.168.123.0/24 by`,
    `netlink route fd00:7::/64 by`,
    "qemu-qmp nic nic0 mac",
    "qemu-qmp nic nic0 slot",
  ])
    t.true(subjects.includes(subject), subject);
});

test.serial("sources that come at once are heard one after the other", async (t) => {
  const socket = vm.socketPath("verify");
  const heard = await Promise.all([1, 2, 3, 4, 5].map(() => queryVmSource(socket)));
  for (const each of heard) t.deepEqual(each, heard[0]);
});

test.serial("whatever is changed behind podnet's back is seen and named", async (t) => {
  const expected = expectedInterfaces(plan, around.networks);
  const signal = AbortSignal.timeout(60_000);
  const machine = await queryVmSource(vm.socketPath("verify"), signal);
  const seen = async (...change: [string, ...string[]]): Promise<string[]> => {
    await run(change);
    return differing(comparePod(expected, await queryHostSource([bridge, tap], signal), machine));
  };
  const link = ["ip", "link", "set", "dev"] as const;
  t.deepEqual(await seen(...link, tap, "mtu", "1300"), [`link ${tap} mtu: 1300 instead of 1400`]);
  await ip("link", "set", "dev", tap, "mtu", "1400");
  t.deepEqual(await seen(...link, tap, "alias", "else"), [
    `link ${tap} alias: else instead of ${alias}`,
  ]);
  await ip("link", "set", "dev", tap, "alias", alias, "group", "0");
  t.deepEqual(await seen(...link, tap, "type", "bridge_slave", "isolated", "off"), [
    `link ${tap} group: 0 instead of ${group}`,
    `link ${tap} isolated: no instead of yes`,
  ]);
  await ip("link", "set", "dev", tap, "group", `${group}`);
  await ip("address", "add", "192.168.123.2/32", "dev", "lo");
  await ip("address", "del", "fd00:7::1/64", "dev", bridge);
  t.deepEqual(await seen(...link, tap, "nomaster"), [
    `link ${tap} master: absent instead of hyper0`,
    `link ${tap} isolated: absent instead of yes`,
    `address fd00:7::1/64 on ${bridge}: no instead of yes`,
    `route fd00:7::/64 by: absent instead of ${bridge}`,
    "address 192.168.123.2 on the host: lo instead of absent",
  ]);
  t.true((await seen(...link, tap, "down")).includes(`link ${tap} up: no instead of yes`));
});

test.serial(
  "what a bridge port is not asked to be is seen: it learns, or is not in its VLAN",
  async (t) => {
    const asked = {
      ...plan,
      interfaces: plan.interfaces.map((each) => ({ ...each, port: { learning: false, vlan: 7 } })),
    };
    const expected = expectedInterfaces(asked, around.networks);
    const machine = await queryVmSource(vm.socketPath("verify"));
    const seen = async (...commands: string[]): Promise<string[]> => {
      for (const command of commands) await run(command.split(" ") as [string, ...string[]]);
      const host = await queryHostSource([bridge, tap]);
      return differing(comparePod(expected, host, machine)).filter((line) =>
        /learning|VLAN/.test(line),
      );
    };
    // A kernel without VLANs on bridges reports none, which differs from what was asked for.
    const noVlan = /^link \S+ VLANs: (?:absent|1 untagged) instead of 7 untagged$/;
    const calm = await seen(
      `ip link set dev ${tap} master ${bridge}`,
      `bridge link set dev ${tap} learning off`,
    );
    t.is(calm.length, 1, calm.join("\n"));
    t.regex(calm[0] ?? "", noVlan);
    t.is(
      (await seen(`bridge link set dev ${tap} learning on`))[0],
      `link ${tap} learning: yes instead of no`,
    );
    await seen(`ip link set dev ${tap} nomaster`);
  },
);

test.serial("a card that is gone, another MAC and a card too many are seen", async (t) => {
  const expected = expectedInterfaces(plan, around.networks);
  const host = await queryHostSource([bridge, tap]);
  const machine = async (): Promise<string[]> =>
    differing(comparePod(expected, host, await queryVmSource(vm.socketPath("verify")))).filter(
      (line) => line.startsWith("nic"),
    );
  t.deepEqual(await machine(), []);
  process.chdir(runDir);
  const replies = await command(
    vmSockets.qmp,
    { execute: "netdev_add", arguments: { type: "hubport", id: "hub0", hubid: 0 } },
    {
      execute: "device_add",
      arguments: { driver: "virtio-net-pci", id: "nic9", netdev: "hub0", bus: "br0", addr: "3" },
    },
  );
  process.chdir("/");
  t.deepEqual(replies, [{ return: {} }, { return: {} }]);
  t.deepEqual(await machine(), ["nics beyond the record: nic9 instead of absent"]);
  const other = expected.map((each) => ({
    ...each,
    nicId: "nic1",
    slot: 2,
    mac: parseMac("52:54:00:00:00:01"),
  }));
  const found = await queryVmSource(vm.socketPath("verify"));
  t.deepEqual(
    differing(comparePod(other, host, found)).filter((line) => line.startsWith("nic")),
    [
      "nic nic1 mac: absent instead of 52:54:00:00:00:01",
      "nics beyond the record: nic0, nic9 instead of absent",
    ],
  );
});

test.serial(
  "a machine that is gone is an error of the source, and its tap is missed",
  async (t) => {
    process.kill(qemu, "SIGKILL");
    qemu = 0;
    const error = await t.throwsAsync(queryVmSource(vm.socketPath("verify")));
    t.true(isPodnetError(error, "COMMAND_FAILED"));
    const host = await queryHostSource([bridge, tap]);
    const checks = comparePod(expectedInterfaces(plan, { fragments: [], definitions: [] }), host, {
      status: "running",
      nics: [],
      pci: [],
    });
    t.true(differing(checks).includes(`link ${tap} kind: absent instead of tun`));
  },
);
