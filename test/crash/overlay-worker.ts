import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type EtcdLab, startEtcd } from "../lab/etcd.ts";
import { labAddresses } from "../lab/lab.ts";
import { neighbourMac, overlayPrefix } from "../lab/overlay-site.ts";
import { type Worker, openWorker } from "./worker.ts";

/** How hosts of the worker's overlay reach each other. */
export type Backend = "vxlan" | "host-gw" | "udp";

/** A worker whose podnetd has an overlay, with an etcd of its own where its uplink leads. */
export interface OverlayWorker extends AsyncDisposable {
  readonly worker: Worker;
  readonly backend: Backend;
  readonly subnetFile: string;
  /** What there was on the host before any podnetd. */
  readonly bare: string;
  /** Leases as they stand in etcd, this host's and others': subnet, and what its value says. */
  leases(): Promise<ReadonlyMap<string, LeaseValue>>;
  /** Keys that podnet keeps apart from flannel's. */
  records(): Promise<readonly string[]>;
  /** Puts the lease of another host, in its `generation`th form. */
  putPeer(n: number, generation?: number): Promise<void>;
  deletePeer(n: number): Promise<void>;
  /** Takes every lease and record out of etcd. */
  forgetLeases(): Promise<void>;
}

/** What a lease's value says, as far as tests here ask. */
export interface LeaseValue {
  readonly PublicIP: string;
  readonly BackendData?: { readonly VtepMAC?: string } | null;
}

/** The link that an overlay's packets go by. */
export const deviceOf: Readonly<Record<Backend, string>> = {
  vxlan: "flannel.7",
  "host-gw": "wan0",
  udp: "flannel0",
};

const configurations: Readonly<Record<Backend, object>> = {
  vxlan: { Type: "vxlan", VNI: 7 },
  "host-gw": { Type: "host-gw" },
  udp: { Type: "udp" },
};

/** Other hosts' subnets, where this host is given none. */
export const isPeers = (subnet: string): boolean => /^10\.77\.2\d\d\./.test(subnet);

const recordsPrefix = `/podnet${overlayPrefix}`;

/** `config`: of a podnetd that knows of no overlay. */
export async function openOverlayWorker(
  name: string,
  backend: Backend,
  config: string,
): Promise<OverlayWorker> {
  await using made = new AsyncDisposableStack();
  const directory = mkdtempSync(path.join(tmpdir(), `podnet-overlay-${name}-`));
  made.defer(() => rmSync(directory, { recursive: true, force: true }));
  const subnetFile = path.join(directory, "flannel/subnet.env");
  const endpoint = `http://${labAddresses.uplinkGateway}:2379`;
  const table = [
    "[overlay]",
    `etcd.endpoints = ["${endpoint}"]`,
    `subnet_file = "${subnetFile}"`,
    "masquerade = true",
  ];
  const worker = made.use(await openWorker(name, `${config}\n${table.join("\n")}\n`));
  const etcd: EtcdLab = made.use(
    await startEtcd({
      addresses: [labAddresses.uplinkGateway],
      machines: [worker.lab.internet],
    }),
  );
  const whole = {
    Network: "10.77.0.0/16",
    SubnetMax: "10.77.199.0",
    Backend: configurations[backend],
  };
  await etcd.etcdctl("put", `${overlayPrefix}/config`, JSON.stringify(whole));
  const bare = await worker.bare();
  const keyOf = (n: number): string => `${overlayPrefix}/subnets/10.77.${n}.0-24`;
  const held = made.move();
  return {
    worker,
    backend,
    subnetFile,
    bare,
    async leases() {
      const text = await etcd.etcdctl("get", "--prefix", `${overlayPrefix}/subnets/`, "-w", "json");
      const { kvs = [] } = JSON.parse(text) as { kvs?: { key: string; value: string }[] };
      const plain = (encoded: string): string => Buffer.from(encoded, "base64").toString();
      return new Map(
        kvs.map(({ key, value }) => [
          plain(key).slice(`${overlayPrefix}/subnets/`.length).replace("-", "/"),
          JSON.parse(plain(value)) as LeaseValue,
        ]),
      );
    },
    async records() {
      const text = await etcd.etcdctl("get", "--prefix", recordsPrefix, "--keys-only");
      return text.split("\n").filter((line) => line !== "");
    },
    async putPeer(n, generation = 0) {
      const value = {
        PublicIP: `198.51.100.${n + generation}`,
        ...(backend === "udp" ? {} : { BackendType: backend }),
        ...(backend === "vxlan"
          ? { BackendData: { VNI: 7, VtepMAC: neighbourMac(n + generation) } }
          : {}),
      };
      await etcd.etcdctl("put", keyOf(n), JSON.stringify(value));
    },
    async deletePeer(n) {
      await etcd.etcdctl("del", keyOf(n));
    },
    async forgetLeases() {
      await etcd.etcdctl("del", "--prefix", `${overlayPrefix}/subnets/`);
      await etcd.etcdctl("del", "--prefix", recordsPrefix);
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}
