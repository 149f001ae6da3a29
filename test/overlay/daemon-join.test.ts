import { execFile } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { promisify } from "node:util";
import test from "ava";
import { labAddresses } from "../lab/lab.ts";
import {
  neighbourMac,
  openOverlaySite,
  overlayPrefix,
  type OverlaySite,
} from "../lab/overlay-site.ts";
import type { Podnetd } from "../lab/podnetd.ts";
import { until } from "../lab/until.ts";

const exec = promisify(execFile);

const vxlan = {
  Network: "10.77.0.0/16",
  // Others are put where no subnet is handed out.
  SubnetMax: "10.77.199.0",
  Backend: { Type: "vxlan", VNI: 7 },
};
/**
 * Waits until the host has its one key and the network that follows; the subnet without its last
 * part.
 */
async function joined({ keys, ip }: OverlaySite, daemon: Podnetd): Promise<string> {
  const key = await until("a key", async () => (await keys()).find((each) => !isOthers(each)));
  const [, base = ""] = /subnets\/(10\.77\.[0-9]+)\.0-24$/.exec(key) ?? [];
  await until(
    `${base} on the bridge`,
    async () => (await ip("addr show hyper0")).includes(`inet ${base}.1/24`),
    30_000,
    () => daemon.log(),
  );
  return base;
}

const isOthers = (key: string): boolean => /10\.77\.2\d\d\./.test(key);

const curl = async (daemon: Podnetd, page: string, ...words: string[]): Promise<string> =>
  (await exec("curl", ["-s", "--unix-socket", daemon.socket, ...words, `http://podnet/${page}`]))
    .stdout;

/** The status that a page is answered with. */
const status = (daemon: Podnetd, page: string): Promise<string> =>
  curl(daemon, page, "-o", "/dev/null", "-w", "%{http_code}");

const overlayLine = async (daemon: Podnetd): Promise<string> =>
  (await daemon.podnet("info")).split("\n").find((line) => line.includes("overlay")) ?? "";

test.serial(
  "podnetd joins: its key, its device, its network and subnet.env; down leaves nothing but the lease",
  async (t) => {
    t.timeout(180_000);
    await using site = await openOverlaySite(["masquerade = true"]);
    await site.configure(vxlan);
    await site.neighbour(201);
    const { ip, etcd, subnetFile, lab } = site;
    await using daemon = await site.start();
    const base = await joined(site, daemon);
    const env = await until("subnet.env", () => existsSync(subnetFile) && read(subnetFile));
    t.is(
      env,
      `FLANNEL_NETWORK=10.77.0.0/16\nFLANNEL_SUBNET=${base}.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n`,
    );
    const [, mac = ""] = /link\/ether (\S+)/.exec(await ip("link show flannel.7")) ?? [];
    const leaseText = async (): Promise<string> => {
      const key = `${overlayPrefix}/subnets/${base}.0-24`;
      return (await etcd.etcdctl("get", key, "--print-value-only")).trim();
    };
    const value = await leaseText();
    t.deepEqual(JSON.parse(value), {
      PublicIP: labAddresses.hostUplink,
      PublicIPv6: null,
      BackendType: "vxlan",
      BackendData: { VNI: 7, VtepMAC: mac },
    });
    t.regex(await ip("addr show flannel.7"), new RegExp(`inet ${base}\\.0/32`));
    t.regex(await ip("link show hyper0"), /mtu 1450/);
    const route = "10.77.201.0/24 via 10.77.201.0 dev flannel.7";
    await until("the neighbour's route", async () => (await ip("route")).includes(route));
    t.is(await status(daemon, "readyz"), "200");
    t.regex(
      await overlayLine(daemon),
      /✓.*10\.77\.\d+\.0\/24 of 10\.77\.0\.0\/16 by vxlan, with 1 other host/i,
    );
    t.is(await daemon.podnet("diff"), "2 parts, all as planned\n");

    const metrics = await curl(daemon, "metrics");
    t.regex(metrics, /^podnet_overlay_lease_phase\{overlay="flannel",phase="held"\} 1$/m);
    t.regex(metrics, /^podnet_overlay_peers\{overlay="flannel"\} 1$/m);
    t.regex(metrics, /^podnet_overlay_stale_seconds\{overlay="flannel"\} 0$/m);

    // Others take the device, then a route, then an entry: all of it comes back, the device as it
    // was.
    await ip("link del flannel.7");
    await until("the device again", async () => (await ip("route")).includes(route));
    t.true((await ip("link show flannel.7")).includes(mac));
    await ip("route del 10.77.201.0/24");
    await until("the route again", async () => (await ip("route")).includes(route));
    await ip("neigh del 10.77.201.0 dev flannel.7");
    await until("the neighbour again", async () =>
      (await ip("neigh show dev flannel.7")).includes(neighbourMac(201)),
    );
    t.regex(daemon.log(), /overlay flannel: .*healed/);
    // (What is made anew alongside it writes it, too, and has nothing to report then.)
    const reported = /overlay flannel: \S+subnet\.env is not so, should be so; healed/;
    await until("word of subnet.env", () => {
      if (!reported.test(daemon.log())) rmSync(subnetFile, { force: true });
      return reported.test(daemon.log());
    });
    await until("subnet.env again", () => existsSync(subnetFile) && read(subnetFile) === env);

    const rules = (): Promise<string> => lab.host.run("iptables-save");
    t.regex(await rules(), /overlay/);
    await daemon.podnet("down", "--yes");
    t.is(await ip("link show flannel.7"), "");
    t.is(await ip("link show hyper0"), "");
    t.is(await ip("route show proto 73"), "");
    t.notRegex(await rules(), /overlay|10\.77\./);
    t.false(existsSync(subnetFile));
    t.is((await site.keys()).filter((key) => !isOthers(key)).length, 1);
  },
);

const read = (file: string): string => readFileSync(file, "utf8");

test.serial(
  "with etcd away a restarted podnetd goes on with its subnet, says how stale it is, and has the same lease after",
  async (t) => {
    t.timeout(180_000);
    await using site = await openOverlaySite(["masquerade = true"]);
    await site.configure(vxlan);
    await site.neighbour(201);
    await using first = await site.start();
    const base = await joined(site, first);
    const keys = await site.keys();
    const routes = await until("routes", async () => {
      const text = await site.ip("route show proto 73");
      return text.includes("10.77.201.0/24") && text;
    });
    const before = await site.ip("link show flannel.7");
    t.is(await first.stop(), 0);
    t.is(await site.ip("link show flannel.7"), before);
    t.is(await site.ip("route show proto 73"), routes);

    const [member] = site.etcd.members;
    await member?.kill();
    await using second = await site.start();
    const plan = await second.podnet("create", "--name", "web", "--plan");
    t.true(plan.includes(`${base}.`), plan);
    await until("stale", async () =>
      /stale: etcd has not been heard for \d+ s/i.test(await overlayLine(second)),
    );
    t.is(await status(second, "readyz"), "200");
    t.is(await site.ip("link show flannel.7"), before);
    t.is(await site.ip("route show proto 73"), routes);

    member?.start();
    await until(
      "etcd heard",
      async () => /✓/.test(await overlayLine(second)),
      30_000,
      () => second.log(),
    );
    t.deepEqual(await site.keys(), keys);
    t.is(await site.ip("link show flannel.7"), before);
    t.is(await site.ip("route show proto 73"), routes);
  },
);

test.serial(
  "before there is a lease, and after it was left, a pod is refused with why; leaving outlives a restart",
  async (t) => {
    t.timeout(180_000);
    await using site = await openOverlaySite(["masquerade = true"]);
    await using first = await site.start();
    const refused = async (daemon: Podnetd, why: RegExp): Promise<void> => {
      const { stderr, exitCode } = await daemon.tryPodnet("create", "--name", "web", "--plan");
      t.is(exitCode, 1, stderr);
      t.regex(stderr, why);
    };
    await refused(first, /has no subnet yet.*OVERLAY_NOT_READY/s);
    t.is(await status(first, "readyz"), "503");
    t.is(await status(first, "healthz"), "200");
    // A network that covers the uplink is none of those a host takes, before it has another and
    // after.
    const covering = { Network: "198.51.0.0/16", Backend: { Type: "vxlan", VNI: 7 } };
    const overlap = (): Promise<unknown> =>
      until("word of the overlap", async () =>
        /198\.51\.0\.0\/16 overlaps with address 198\.51\.100\.2\S* of "\S+"/.test(
          await first.podnet("overlay", "list"),
        ),
      );
    await site.configure(covering);
    await overlap();
    t.deepEqual(await site.keys(), []);
    await site.configure(vxlan);
    const base = await joined(site, first);
    await site.configure(covering);
    await overlap();
    t.is((await site.keys()).length, 1);
    t.regex(await site.ip("addr show hyper0"), /10\.77\./);
    await site.configure(vxlan);
    t.true((await first.podnet("create", "--name", "web", "--plan")).includes(`${base}.`));
    t.is(await status(first, "readyz"), "200");

    await until("the device", async () => (await site.ip("link show flannel.7")) !== "");
    await first.podnet("overlay", "leave");
    t.deepEqual(await site.keys(), []);
    t.false((await site.ip("addr show hyper0")).includes("10.77."));
    await until("no device", async () => (await site.ip("link show flannel.7")) === "");
    await refused(first, /has left.*OVERLAY_NOT_READY/s);
    await first.stop();
    await using second = await site.start();
    await refused(second, /has left.*OVERLAY_NOT_READY/s);
    t.regex(await overlayLine(second), /✓.*left/);
    await second.podnet("overlay", "join");
    t.not(await joined(site, second), "");
  },
);
