import path from "node:path";
import test from "ava";
import { type OverlaySite, openOverlaySite, overlayPrefix } from "../lab/overlay-site.ts";
import { type Podnetd, startPodnetd } from "../lab/podnetd.ts";
import { until } from "../lab/until.ts";

// A host is installed anew: another podnetd, by its state directory, at the address that a lease in
// etcd names.

const records = `/podnet${overlayPrefix}/hosts/`;

async function listed(site: OverlaySite, prefix: string): Promise<readonly string[]> {
  const text = await site.etcd.etcdctl("get", "--prefix", prefix, "--keys-only");
  return text.split("\n").filter((line) => line !== "");
}

/** A site whose host had a lease and a record, and was then lost with all that it knew. */
async function lostHost(): Promise<{ site: OverlaySite; key: string; record: string }> {
  const site = await openOverlaySite();
  await site.configure({ Network: "10.77.0.0/16", Backend: { Type: "vxlan", VNI: 7 } });
  const first = await site.start();
  const key = await until("its lease", async () => (await site.keys())[0], 30_000);
  const record = await until("its record", async () => (await listed(site, records))[0], 30_000);
  await first.kill();
  for (const link of ["flannel.7", "hyper0"]) await site.ip(`link delete ${link}`);
  return { site, key, record };
}

/** Podnetd of the new installation. */
const installedAnew = ({ lab, etcd, directory }: OverlaySite): Promise<Podnetd> =>
  startPodnetd({
    machine: lab.host,
    directory: path.join(directory, "anew"),
    config: [
      "[image]",
      'kernel = "/bin/sh"',
      'initrd = "/bin/sh"',
      "[overlay]",
      `etcd.endpoints = ["${etcd.client.endpoints.join('", "')}"]`,
      `subnet_file = "${path.join(directory, "anew/subnet.env")}"`,
      "",
    ].join("\n"),
  });

const holds = async (podnetd: Podnetd): Promise<boolean> =>
  / held /.test(await podnetd.podnet("overlay"));

test.serial(
  "a host that was installed anew has its lease again when its former record has ended, not before",
  async (t) => {
    t.timeout(120_000);
    const { site, key, record } = await lostHost();
    await using _site = site;
    await using podnetd = await installedAnew(site);
    const said = await until("it to be refused", async () => {
      const text = await podnetd.podnet("overlay");
      return text.includes("which is this host's address") ? text : undefined;
    });
    t.true(said.includes(`etcdctl del '${key}'`), said);
    // Two looks pass: a host with a record is there.
    await new Promise((resolve) => setTimeout(resolve, 11_000));
    t.false(await holds(podnetd));
    // As its end after five minutes would.
    await site.etcd.etcdctl("del", record);
    await until(
      "the lease to be taken over",
      () => holds(podnetd),
      20_000,
      () => podnetd.log(),
    );
    t.deepEqual(await site.keys(), [key]);
    t.notRegex(await podnetd.podnet("overlay"), /this host's address/);
  },
);

test.serial(
  "a command takes the lease over at once, and the hint's etcdctl lets the host have another",
  async (t) => {
    t.timeout(120_000);
    const { site, key } = await lostHost();
    await using _site = site;
    {
      await using podnetd = await installedAnew(site);
      await until("it to be refused", async () =>
        (await podnetd.podnet("overlay")).includes("podnet overlay join --take-over"),
      );
      await podnetd.podnet("overlay", "join", "--take-over");
      await until(
        "the lease to be taken over",
        () => holds(podnetd),
        5000,
        () => podnetd.log(),
      );
      t.deepEqual(await site.keys(), [key]);
    }
    const again = await lostHost();
    await using _again = again.site;
    await using podnetd = await installedAnew(again.site);
    await until("it to be refused", async () =>
      (await podnetd.podnet("overlay")).includes(`etcdctl del '${again.key}'`),
    );
    await again.site.etcd.etcdctl("del", again.key);
    await until(
      "a lease of its own",
      () => holds(podnetd),
      5000,
      () => podnetd.log(),
    );
  },
);
