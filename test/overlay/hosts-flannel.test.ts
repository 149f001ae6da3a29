import test from "ava";
import { dualOverlay, hostGwOverlay, meet, openHosts, reaches } from "../lab/hosts.ts";
import { until } from "../lab/until.ts";

/** The stand-ins do this with podnetd's hosts in hosts-joined and hosts-random, in each run. */
const inFull = process.env["PODNET_TEST_FULL"] === "1" ? test.serial : test.serial.skip;

for (const [name, overlay] of [
  ["vxlan of both families", dualOverlay],
  ["host-gw", hostGwOverlay],
] as const)
  inFull(`Flannel's stand-ins make an overlay by themselves: ${name}`, async (t) => {
    await using lab = await openHosts({ kinds: ["flannel", "flannel"], overlay });
    const [a, b] = lab.hosts as [(typeof lab.hosts)[0], (typeof lab.hosts)[0]];
    await Promise.all([a.start(), b.start()]);
    const containers = [await a.container(), await b.container()] as const;
    await meet(containers);
    // Etcd is not needed for what is there already, and neither is a daemon.
    await lab.underlay.cut(1, "store");
    await b.end("SIGKILL");
    t.true(await containers[0].machine.reaches(containers[1].address));
    // The control: who is cut off is not reached.
    await lab.underlay.cut(1, 2);
    t.false(await containers[0].machine.reaches(containers[1].address));
    await lab.underlay.mend(1, 2);
    await reaches(containers[0], containers[1].address);
  });

test.serial("A stand-in of flannel has flannel's faults", async (t) => {
  await using lab = await openHosts({ kinds: ["flannel", "flannel"] });
  const [a, b] = lab.hosts as [(typeof lab.hosts)[0], (typeof lab.hosts)[0]];
  await Promise.all([a.start(), b.start()]);
  await Promise.all([a.joined(), b.joined()]);
  const routes = (): Promise<string> => a.machine.run("ip", "route", "show", "dev", "flannel.1");
  await until("the peer's route", async () => (await routes()).includes("via"));

  // A key alongside the subnets that cannot be read.
  await lab.etcd.etcdctl("put", `${lab.prefix}/subnets-of-podnet`, "x");
  await until("all routes to be gone", async () => !(await routes()).includes("via"));

  // Its own key.
  const key = await lab.leaseOf(a);
  await lab.etcd.etcdctl("del", `${lab.prefix}/subnets/${key}`);
  await until("its end", () => !a.running);
  t.regex(a.log(), /Lease has been revoked/);
  t.true(b.running);

  // A lease of two families where there is one.
  const value = JSON.stringify({
    PublicIP: "192.168.77.9",
    PublicIPv6: "fd77::9",
    BackendType: "vxlan",
    BackendData: { VNI: 1, VtepMAC: "02:00:00:00:00:09" },
    BackendV6Data: { VNI: 1, VtepMAC: "02:00:00:00:06:09" },
  });
  const dual = `${lab.prefix}/subnets/10.77.9.0-24&fd00:77:0:9::-64`;
  await lab.etcd.etcdctl("put", dual, value);
  await until("it to stand still", () => b.log().includes("wedged"));
  t.true(b.running);
});
