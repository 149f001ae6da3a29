/** Pods that take their network from CNI plugins, with real QEMU: docs/decisions/0050. */
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import test from "ava";
import { labAddresses } from "../lab/lab.ts";
import { execIn } from "./daemon-rig.ts";
import { first, openPodCniRig, type PodCniRig } from "./pod-cni-rig.ts";

let cni: PodCniRig;
test.serial.before(async () => {
  cni = await openPodCniRig();
});
test.serial.after.always(async () => {
  await cni?.[Symbol.asyncDispose]();
});

const inPod = async (pod: string, ...words: readonly string[]): Promise<string> =>
  (await execIn(cni.rig.client, pod, ...words)).output;
const reachesFrom = async (pod: string, address: string): Promise<boolean> =>
  (await execIn(cni.rig.client, pod, "ping", "-c", "3", "-W", "5", address)).code === 0;

test.serial(
  "a pod takes the place of a link in a foreign namespace, and gives it back",
  async (t) => {
    const { rig, ip } = cni;
    const { client } = rig;
    await cni.ip("netns add others");
    await cni.ip("link add vothers type veth peer name net0 netns others");
    await cni.ip("address add 10.70.0.1/24 dev vothers");
    await cni.ip("link set vothers mtu 1400 up");
    const inside = (words: string): Promise<string> => ip(`-n others ${words}`);
    await inside("link set net0 address 02:70:00:00:00:02 mtu 1400 up");
    await inside("address add 10.70.0.2/24 dev net0");
    await inside("route add 10.71.0.0/16 via 10.70.0.9 mtu 1300 advmss 1200");
    // As Calico's: a gateway that is in no network of the link's.
    await inside("route add default via 169.254.1.1 dev net0 onlink");
    await inside("neigh add 10.70.0.50 lladdr 02:70:00:00:00:50 dev net0");
    t.true(await cni.rig.lab.host.reaches("10.70.0.2"), "the namespace's own kernel");

    const others = { netns: "/run/netns/others", link: "net0" };
    const { pod } = await client.pods.create({
      spec: { name: "joined", interfaces: [{ cni: others }] },
    });
    const { mac, mtu, addresses, netns } = first(pod);
    t.deepEqual(
      { mac, mtu, addresses, netns },
      {
        mac: "02:70:00:00:00:02",
        mtu: 1400,
        addresses: ["10.70.0.2/24"],
        netns: "/run/netns/others",
      },
    );
    t.regex(await inPod("joined", "ip", "link", "show", "eth0"), /mtu 1400[^]*02:70:00:00:00:02/);
    const routes = await inPod("joined", "ip", "route");
    t.regex(routes, /^default via 169\.254\.1\.1 dev eth0/m);
    t.regex(routes, /^10\.71\.0\.0\/16 via 10\.70\.0\.9 dev eth0/m);
    // (There the kernel shows what TCP takes, with 40 bytes of headers.)
    t.regex(await inPod("joined", "cat", "/proc/net/route"), /^eth0\t0000470A.*\t1240\t/m);
    t.regex(await inPod("joined", "cat", "/proc/net/arp"), /10\.70\.0\.50 .*02:70:00:00:00:50/);
    t.true(await reachesFrom("joined", "10.70.0.1"));
    t.true(await cni.rig.lab.host.reaches("10.70.0.2"));
    t.true((await client.pods.verify({ idOrName: "joined" })).ok);

    // Only the machine answers.
    await client.pods.pause({ idOrName: "joined" });
    t.false(await cni.rig.lab.host.reaches("10.70.0.2"));
    await client.pods.resume({ idOrName: "joined" });
    t.true(await cni.rig.lab.host.reaches("10.70.0.2"));

    // Another cannot take the same place.
    await t.throwsAsync(client.pods.create({ spec: { interfaces: [{ cni: others }] } }), {
      message: /has a machine in it/,
    });
    t.true(await reachesFrom("joined", "10.70.0.1"), "which the other did not disturb");

    await cni.rig.restart("kill");
    t.true(await reachesFrom("joined", "10.70.0.1"), "after a podnetd that was killed");
    await cni.rig.client.pods.delete({ idOrName: "joined" });
    t.true(await cni.rig.lab.host.reaches("10.70.0.2"), "the namespace's own kernel again");
    t.notRegex(await inside("-o link show"), /pn/);
    await cni.ip("netns del others");
  },
);

test.serial(
  "the first good list sets a pod up, and what it set up is taken back after podnetd was killed and the list is gone",
  async (t) => {
    writeFileSync(path.join(cni.lists, "00-broken.conf"), "{");
    cni.writeList("05-typeless.conflist", "typeless", { bridge: "none" });
    cni.writeList(
      "10-net.conflist",
      "net",
      cni.bridge("net", "10.69.0.0/24"),
      { type: "portmap", capabilities: { portMappings: true } },
      { type: "bandwidth", capabilities: { bandwidth: true } },
    );
    const capabilities = JSON.stringify({
      mac: "02:69:00:00:00:07",
      portMappings: [{ hostPort: 8069, containerPort: 80, protocol: "tcp" }],
      bandwidth: { ingressRate: 1e9, ingressBurst: 1e8, egressRate: 1e9, egressBurst: 1e8 },
    });
    const interfaces = [{ cni: { capabilities } }];
    const { pod } = await cni.rig.client.pods.create({ spec: { name: "listed", interfaces } });
    for (const passedOver of ["00-broken.conf", "05-typeless.conflist"])
      t.true(
        cni.rig.daemon.log().includes(`Skipping a CNI configuration file: ${passedOver}: `),
        passedOver,
      );
    const { mac, mtu, addresses, netns } = first(pod);
    t.deepEqual(
      { mac, mtu, addresses },
      { mac: "02:69:00:00:00:07", mtu: 1450, addresses: ["10.69.0.2/24"] },
    );
    t.deepEqual(cni.sandboxes(), [path.basename(netns)]);
    const inside = (words: string): Promise<string> =>
      cni.rig.lab.host.run("nsenter", `--net=${netns}`, "ip", ...words.split(" "));
    t.regex(await inside("address show eth0"), /02:69:00:00:00:07[^]*10\.69\.0\.2\/24/);
    t.regex(await inside("link show lo"), /LOOPBACK,UP/);
    t.regex(
      await inPod("listed", "cat", "/etc/resolv.conf"),
      /^nameserver 192\.0\.2\.53\nsearch cni\.example$/m,
    );
    t.true(await cni.rig.lab.host.reaches("10.69.0.2"));
    t.true(await reachesFrom("listed", labAddresses.internet), "out, masqueraded by the plugin");
    t.is((await cni.rules(/--dport 8069 -j DNAT --to-destination 10\.69\.0\.2:80/)).length, 1);
    t.deepEqual(cni.held("net"), ["10.69.0.2"]);

    await cni.rig.restart("kill");
    for (const name of readdirSync(cni.lists)) rmSync(path.join(cni.lists, name));
    t.true(await reachesFrom("listed", "10.69.0.1"));
    await cni.rig.client.pods.delete({ idOrName: "listed" });
    t.deepEqual(cni.held("net"), []);
    t.deepEqual(cni.sandboxes(), []);
    t.notRegex(await cni.ip("-o link show"), /master br-net/);
    t.deepEqual(await cni.rules(/10\.69|8069|CNI-DN/), []);
  },
);
