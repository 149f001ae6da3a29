import { DatabaseSync } from "node:sqlite";
import path from "node:path";
import test from "ava";
import { connectPodnet } from "../../api/client.ts";
import { neighbourMac, openOverlaySite, overlayPrefix } from "../lab/overlay-site.ts";
import type { EtcdMember } from "../lab/etcd-member.ts";
import { until } from "../lab/until.ts";

/** Has what was written down be another boot's. */
function ofAnotherBoot(stateDir: string): void {
  const db = new DatabaseSync(path.join(stateDir, "state.db"));
  const changed = db
    .prepare(
      "UPDATE meta SET value = json_set(value, '$.bootId', 'another') WHERE key = 'peers of flannel'",
    )
    .run();
  db.close();
  if (changed.changes !== 1) throw new Error("No peers were written down");
}

test.serial(
  "a host that is booted while etcd is away leads to the others as it knew them",
  async (t) => {
    t.timeout(180_000);
    await using site = await openOverlaySite(["masquerade = true"]);
    const { etcd, ip } = site;
    await site.configure({
      Network: "10.77.0.0/16",
      SubnetMax: "10.77.199.0",
      Backend: { Type: "vxlan", VNI: 7 },
    });
    for (const n of [201, 202]) await site.neighbour(n);
    const routeTo = (n: number): string => `10.77.${n}.0/24 via 10.77.${n}.0 dev flannel.7`;
    const leadsTo = async (...hosts: readonly number[]): Promise<boolean> => {
      const routes = await ip("route");
      return hosts.every((n) => routes.includes(routeTo(n)));
    };
    const macOf = async (): Promise<string | undefined> =>
      /link\/ether (\S+)/.exec(await ip("link show flannel.7"))?.[1];
    let mac: string | undefined;
    {
      await using first = await site.start();
      await until("both routes", () => leadsTo(201, 202), 30_000);
      mac = await macOf();
      await first.stop();
      ofAnotherBoot(first.stateDir);
    }
    const [member] = etcd.members as [EtcdMember];
    await member.kill();
    for (const link of ["flannel.7", "hyper0"]) await ip(`link delete ${link}`);
    t.false(await leadsTo(201), "the boot has forgotten everything");
    await using second = await site.start();
    await until(
      "both routes again",
      () => leadsTo(201, 202),
      30_000,
      () => second.log(),
    );
    t.is(await macOf(), mac);
    const entries = await site.lab.host.run("bridge", "fdb", "show", "dev", "flannel.7");
    t.true(entries.includes(`${neighbourMac(201)} dst 198.51.100.201`), entries);
    using podnet = connectPodnet({ socket: second.socket });
    const troubles = async (): Promise<string> => {
      const { overlays } = await podnet.overlays.list({});
      return overlays.flatMap((each) => each.troubles).join();
    };
    const shown = await until("word of it", async () => {
      const text = await troubles();
      return text.includes("since this host was booted") ? text : undefined;
    });
    t.regex(shown, /2 other hosts are as they were at 20/);
    // One has left meanwhile.
    member.start();
    await member.ready();
    await etcd.etcdctl("del", `${overlayPrefix}/subnets/10.77.202.0-24`);
    await until(
      "its route to go",
      async () => !(await leadsTo(202)),
      60_000,
      () => second.log(),
    );
    t.true(await leadsTo(201));
    await until("no such word", async () => !(await troubles()).includes("was booted"));
  },
);
