import test from "ava";
import { meet, openHosts } from "../lab/hosts.ts";
import { isAsFlannelLeavesIt } from "../lab/overlay-golden.ts";

/**
 * Three members for a minute: a complete run's. etcd-failover and etcd-trust look at podnetd's side
 * in each run.
 */
const inFull = process.env["PODNET_TEST_FULL"] === "1" ? test : test.skip;

inFull("Hosts of both kinds go on when any of etcd's three members is gone, by TLS", async (t) => {
  await using lab = await openHosts({ kinds: ["podnet", "flannel"], members: 3, tls: true });
  const [one, two] = lab.hosts as [(typeof lab.hosts)[0], (typeof lab.hosts)[0]];
  await Promise.all([one.start(), two.start()]);
  await meet(await Promise.all([one.container(), two.container()]));
  for (const member of lab.etcd.members) {
    await member.kill();
    await lab.etcd.ready();
    // What is new is heard of all the same.
    const value = `{"PublicIP":"192.168.77.240","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:04:f0"}}`;
    await lab.etcd.etcdctl("put", `${lab.prefix}/subnets/10.77.240.0-24`, value);
    for (const host of lab.hosts) await isAsFlannelLeavesIt(lab, host);
    await lab.etcd.etcdctl("del", `${lab.prefix}/subnets/10.77.240.0-24`);
    for (const host of lab.hosts) await isAsFlannelLeavesIt(lab, host);
    member.start();
    await lab.etcd.ready();
  }
  t.is((await lab.leases()).size, 2);
});
