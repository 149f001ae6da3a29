import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { bootMs, eventually, isClean, openDebianRig, shell } from "./debian-rig.ts";

let rig: Awaited<ReturnType<typeof openDebianRig>>;
test.serial.before(async (t) => {
  t.timeout(bootMs);
  rig = await openDebianRig();
});
test.serial.after.always(async () => {
  await rig?.[Symbol.asyncDispose]();
});

const addresses = ["10.20.0.2", "fd00:20::2"] as const;
const mainPid = "systemctl show --property MainPID --value podnet-guest";

/**
 * That the pod's network is what it was: looked at from outside, from inside, and by the sources.
 */
async function isWhole(t: ExecutionContext): Promise<void> {
  for (const address of addresses) await rig.lab.host.ping(address);
  await shell(t, rig, "ping -c 1 -W 2 10.20.0.1 && ping -c 1 -W 2 fd00:20::1");
  const { ok, checks } = await rig.client.pods.verify({ idOrName: "deb" });
  t.true(ok, JSON.stringify(checks.filter((check) => !check.ok)));
}

/** Interfaces, addresses and routes in the pod, without what changes by itself. */
const network = (t: ExecutionContext): Promise<string> =>
  shell(
    t,
    rig,
    "ip -br address show dev eth0; ip route show dev eth0; ip -6 route show dev eth0; cat /etc/resolv.conf",
  );

test.serial("a Debian with systemd is a pod like any other", async (t) => {
  const { pod } = await rig.client.pods.get({ idOrName: "deb" });
  t.deepEqual(pod?.interfaces[0]?.observedAddresses, ["10.20.0.2/24", "fd00:20::2/64"]);
  await isWhole(t);
  t.is(
    await shell(t, rig, "cat /proc/1/comm; hostname; cat /etc/hostname"),
    "systemd\ndeb\ndebian",
  );
  t.is(
    await shell(t, rig, "stat -f -c %T /; ls -d /tmp/hyper || true"),
    "ext2/ext3\nls: cannot access '/tmp/hyper': No such file or directory",
  );
});

test.serial("files go in and come out", async (t) => {
  const directory = join(rig.directory, "files");
  mkdirSync(join(directory, "in"), { recursive: true });
  writeFileSync(join(directory, "in/one"), "first");
  await rig.daemon.podnet("cp", join(directory, "in"), "deb:/root/copied");
  t.is(await shell(t, rig, "cat /root/copied/one; echo second > /root/copied/two"), "first");
  await rig.daemon.podnet("cp", "deb:/root/copied", join(directory, "out"));
  t.is(readFileSync(join(directory, "out/two"), "utf8"), "second\n");
});

test.serial("orphans are systemd's, and are not ended with the agent", async (t) => {
  const orphan = await shell(t, rig, "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!");
  t.is(await shell(t, rig, `sed -n 's/^PPid:\\t//p' /proc/${orphan}/status`), "1");
  const before = await shell(t, rig, mainPid);
  // An address that was taken away shows when the new agent has been configured.
  await shell(t, rig, "ip address del fd00:20::2/64 dev eth0");
  await shell(t, rig, "systemd-run --quiet --no-block systemctl restart podnet-guest");
  await eventually(rig, "ip -br address show dev eth0 to fd00:20::2");
  t.not(await shell(t, rig, mainPid), before);
  t.is(await shell(t, rig, `cat /proc/${orphan}/comm; kill ${orphan}`), "sleep");
  await isWhole(t);
});

test.serial("an agent that is killed is back, and configured", async (t) => {
  const before = await shell(t, rig, mainPid);
  await shell(t, rig, "ip address del fd00:20::2/64 dev eth0");
  // By another program: the agent's own children go with its channel.
  await shell(t, rig, `systemd-run --quiet --no-block sh -c 'kill -KILL ${before}'`);
  await eventually(rig, "ip -br address show dev eth0 to fd00:20::2");
  t.not(await shell(t, rig, mainPid), before);
  await isWhole(t);
});

test.serial(
  "systemd-networkd sets up what is its own, and leaves a pod's interface alone",
  async (t) => {
    const before = await network(t);
    await shell(
      t,
      rig,
      `mkdir -p /run/systemd/network && ip link add other type dummy && ip link add any type dummy && printf '[Match]\\nName=other\\n[Network]\\nAddress=10.99.0.1/24\\n' > /run/systemd/network/50-other.network
     printf '[Match]\\nName=*\\n[Network]\\nDHCP=yes\\nIPv6AcceptRA=yes\\n' > /run/systemd/network/90-all.network`,
    );
    for (let restart = 1; restart <= 2; restart++) {
      await shell(t, rig, "systemctl restart systemd-networkd");
      await eventually(rig, "ip -br address show dev other to 10.99.0.1");
      t.is(await network(t), before);
    }
    t.regex(await shell(t, rig, "networkctl list --no-legend"), /eth0 +ether +\S+ +unmanaged/);
    // A program that should take everything does so, but for the pod's.
    t.regex(
      await eventually(rig, "networkctl list --no-legend any"),
      /any +ether +\S+ +configuring/,
    );
    await isWhole(t);
    await shell(
      t,
      rig,
      "rm /run/systemd/network/*; systemctl stop systemd-networkd systemd-networkd.socket; ip link del other; ip link del any",
    );
  },
);

test.serial("ifupdown sets up what is its own, and leaves a pod's interface alone", async (t) => {
  const before = await network(t);
  const stanza = "auto other\\niface other inet static\\n address 10.98.0.1/24\\n";
  await shell(
    t,
    rig,
    `ip link add other type dummy; printf '${stanza}' > /etc/network/interfaces.d/other`,
  );
  await shell(t, rig, "systemctl restart networking");
  t.regex(await shell(t, rig, "ip -br address show dev other"), /10\.98\.0\.1/);
  t.is(await network(t), before);
  await shell(t, rig, "ifdown -a");
  t.notRegex(await shell(t, rig, "ip -br address show dev other"), /10\.98\.0\.1/);
  t.is(await network(t), before);
  await shell(t, rig, "ifup -a; rm /etc/network/interfaces.d/other; ip link del other");
  await isWhole(t);
});

test.serial("an interface that is added has the name asked for, and keeps it", async (t) => {
  const { pod } = await rig.client.pods.addInterface({
    idOrName: "deb",
    interface: { network: "dual", guestName: "lan0" },
  });
  const added = pod?.interfaces.find(({ guestName }) => guestName === "lan0");
  t.is(added?.addresses.length, 2);
  await shell(t, rig, "udevadm trigger --action=add --subsystem-match=net --settle");
  t.is(await shell(t, rig, "cat /sys/class/net/lan0/address"), added?.mac ?? "");
  for (const address of added?.addresses ?? [])
    await rig.lab.host.ping(address.replace(/\/.*/, ""));
  await rig.client.pods.removeInterface({ idOrName: "deb", guestName: "lan0" });
  t.is(await shell(t, rig, "ls /sys/class/net"), "eth0\nlo");
  await isWhole(t);
});

test.serial("a stop lets systemd end what runs, and leaves the file system clean", async (t) => {
  t.false(isClean(rig.disk), "mounted");
  await rig.client.pods.stop({ idOrName: "deb" });
  t.true(isClean(rig.disk));
});
