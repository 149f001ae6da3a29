import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { type EtcdLab, startEtcd } from "../lab/etcd.ts";
import { type Lab, labAddresses, openLab } from "../lab/lab.ts";
import { type Podnetd, type PodnetdOptions, startPodnetd } from "../lab/podnetd.ts";

const prefix = "/coreos.com/network";

/** Waits for a state that can be seen; what it was last is in the error. */
async function until<T>(look: () => Promise<T>, isSo: (seen: T) => boolean): Promise<T> {
  let seen: T | undefined;
  for (let tries = 0; tries < 600; tries++) {
    seen = await look();
    if (isSo(seen)) return seen;
    await delay(50);
  }
  throw new Error(`It never came to be: ${JSON.stringify(seen)}`);
}

interface Site extends AsyncDisposable {
  readonly lab: Lab;
  readonly etcd: EtcdLab;
  readonly subnetFile: string;
  start(more?: Partial<PodnetdOptions>): Promise<Podnetd>;
  config(value: object): Promise<void>;
  keys(): Promise<readonly string[]>;
  /** Lines of `ip` on podnetd's host. */
  ip(...words: readonly string[]): Promise<readonly string[]>;
}

let sites = 0;

async function openSite(): Promise<Site> {
  await using made = new AsyncDisposableStack();
  const lab = made.use(await openLab(`join${process.pid}-${sites++}-`));
  const etcd = made.use(
    await startEtcd({ addresses: [labAddresses.uplinkGateway], machines: [lab.internet] }),
  );
  const directory = mkdtempSync(join(tmpdir(), "podnet-join-"));
  made.defer(() => rmSync(directory, { recursive: true, force: true }));
  const subnetFile = join(directory, "flannel/subnet.env");
  const config = [
    "[overlay]",
    `etcd.endpoints = [${etcd.members.map(({ endpoint }) => `"${endpoint}"`).join()}]`,
    `subnet_file = "${subnetFile}"`,
    "masquerade = true\n",
  ].join("\n");
  const owned = made.move();
  return {
    lab,
    etcd,
    subnetFile,
    start: (more) => startPodnetd({ machine: lab.host, directory, config, ...more }),
    async config(value) {
      await etcd.etcdctl("put", `${prefix}/config`, JSON.stringify(value));
    },
    async keys() {
      const text = await etcd.etcdctl("get", "--prefix", `${prefix}/subnets`, "--keys-only");
      return text.split("\n").filter((line) => line !== "");
    },
    async ip(...words) {
      const text = await lab.host.run("ip", ...words);
      return text.split("\n").map((line) => line.trim());
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

const vxlan = { Network: "10.77.0.0/16", Backend: { Type: "vxlan", VNI: 7 } };

test("podnetd joins: its key, its device, its network and subnet.env", async (t) => {
  await using site = await openSite();
  await site.config(vxlan);
  await using daemon = await site.start();
  const [key = ""] = await until(site.keys, (keys) => keys.length === 1);
  const [, base = ""] = /subnets\/(10\.77\.[0-9]+)\.0-24$/.exec(key) ?? [];
  t.not(base, "", key);
  const env = await until(
    async () => {
      try {
        return readFileSync(site.subnetFile, "utf8");
      } catch {
        return "";
      }
    },
    (text) => text !== "",
  );
  t.is(
    env,
    `FLANNEL_NETWORK=10.77.0.0/16\nFLANNEL_SUBNET=${base}.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n`,
  );
  const [value = ""] = (await site.etcd.etcdctl("get", key, "--print-value-only")).split("\n");
  const mac = (await site.ip("-br", "link", "show", "flannel.7")).join(" ").split(/\s+/)[2];
  t.deepEqual(JSON.parse(value), {
    PublicIP: labAddresses.hostUplink,
    PublicIPv6: null,
    BackendType: "vxlan",
    BackendData: { VNI: 7, VtepMAC: mac },
  });
  t.regex(
    (await site.ip("addr", "show", "flannel.7")).join("\n"),
    new RegExp(`inet ${base}\\.0/32`),
  );
  await until(
    () => site.ip("addr", "show", "hyper0"),
    (lines) => lines.some((line) => line.startsWith(`inet ${base}.1/24`)),
  );
  t.regex(await daemon.podnet("overlay", "list"), /held/i);
  t.log(daemon.log());
});
