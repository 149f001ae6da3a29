import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type EtcdLab, startEtcd } from "./etcd.ts";
import { type Lab, labAddresses, openLab } from "./lab.ts";
import { type Podnetd, startPodnetd } from "./podnetd.ts";

/** Where flannel's keys are. */
export const overlayPrefix = "/coreos.com/network";

/** The MAC of another host's end of the tunnel. */
export const neighbourMac = (n: number): string =>
  `02:00:00:00:00:${n.toString(16).padStart(2, "0")}`;

/** One host with podnetd, and an etcd that it gets to by its uplink. */
export interface OverlaySite extends AsyncDisposable {
  readonly lab: Lab;
  readonly etcd: EtcdLab;
  readonly subnetFile: string;
  readonly directory: string;
  /** `more`: further lines of the same table. */
  start(...more: readonly string[]): Promise<Podnetd>;
  configure(value: object): Promise<void>;
  /** Puts the lease of another host. */
  neighbour(n: number): Promise<void>;
  keys(): Promise<readonly string[]>;
  /** What `ip` says on podnetd's host; empty when it refuses. */
  ip(command: string): Promise<string>;
}

let sites = 0;

/** `lines`: of podnetd's table `[overlay]`. Nothing runs but etcd. */
export async function openOverlaySite(lines: readonly string[] = []): Promise<OverlaySite> {
  await using made = new AsyncDisposableStack();
  const lab = made.use(await openLab(`site${process.pid}-${sites++}-`));
  const etcd = made.use(
    await startEtcd({ addresses: [labAddresses.uplinkGateway], machines: [lab.internet] }),
  );
  const directory = mkdtempSync(join(tmpdir(), "podnet-site-"));
  made.defer(() => rmSync(directory, { recursive: true, force: true }));
  const subnetFile = join(directory, "flannel/subnet.env");
  const config = [
    "drift_s = 1",
    "[image]",
    // A plan looks whether they are there, and runs neither.
    'kernel = "/bin/sh"',
    'initrd = "/bin/sh"',
    "[overlay]",
    `etcd.endpoints = ["${etcd.client.endpoints.join('", "')}"]`,
    `subnet_file = "${subnetFile}"`,
    ...lines,
  ];
  const owned = made.move();
  return {
    lab,
    etcd,
    subnetFile,
    directory,
    start: (...more) =>
      startPodnetd({
        machine: lab.host,
        directory,
        config: [...config, ...more, ""].join("\n"),
        readyMs: 60_000,
      }),
    async configure(value) {
      await etcd.etcdctl("put", `${overlayPrefix}/config`, JSON.stringify(value));
    },
    async neighbour(n) {
      const value = {
        PublicIP: `198.51.100.${n}`,
        BackendType: "vxlan",
        BackendData: { VNI: 7, VtepMAC: neighbourMac(n) },
      };
      await etcd.etcdctl("put", `${overlayPrefix}/subnets/10.77.${n}.0-24`, JSON.stringify(value));
    },
    async keys() {
      const text = await etcd.etcdctl("get", "--prefix", `${overlayPrefix}/subnets`, "--keys-only");
      return text.split("\n").filter((line) => line !== "");
    },
    async ip(command) {
      return lab.host.run("ip", ...command.split(" ")).catch(() => "");
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
