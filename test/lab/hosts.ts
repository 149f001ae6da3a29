import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type EtcdLab, startEtcd } from "./etcd.ts";
import type { Container } from "./overlay-container.ts";
import { type Kind, OverlayLabHost } from "./overlay-host.ts";
import { Underlay } from "./underlay.ts";
import { until } from "./until.ts";

export interface HostsOptions {
  /** What runs on each, from host 1 on. */
  readonly kinds: readonly Kind[];
  /** The overlay's configuration in etcd; vxlan on 10.77.0.0/16 unless given. */
  readonly overlay?: Readonly<Record<string, unknown>>;
  readonly members?: 1 | 3;
  readonly tls?: boolean;
  /** How long leases last; a day unless given. */
  readonly ttlSeconds?: number;
  /** For every podnetd: top-level keys and tables other than those of the lab. */
  readonly podnetConfig?: string;
  /** Whether flanneld runs with -ip-masq. */
  readonly masquerade?: boolean;
}

/** Several hosts of one overlay on one link, in the company of an etcd. */
export interface HostsLab extends AsyncDisposable {
  readonly hosts: readonly OverlayLabHost[];
  readonly underlay: Underlay;
  readonly etcd: EtcdLab;
  readonly prefix: string;
  /** Leases as they stand in etcd: last part of the key, and value. */
  leases(): Promise<ReadonlyMap<string, string>>;
  /** The lease that names a host's address. */
  leaseOf(host: OverlayLabHost): Promise<string | undefined>;
}

const usualOverlay = { Network: "10.77.0.0/16", Backend: { Type: "vxlan" } };
export const dualOverlay = {
  ...usualOverlay,
  IPv6Network: "fd00:77::/48",
  EnableIPv6: true,
};
export const hostGwOverlay = { Network: "10.77.0.0/16", Backend: { Type: "host-gw" } };

let labs = 0;

/** Opens the lab with its etcd configured; no daemon runs yet. */
export async function openHosts(options: HostsOptions): Promise<HostsLab> {
  const { kinds, overlay = usualOverlay, members = 1, ttlSeconds = 86_400 } = options;
  const name = `o${process.pid}${"abcdefghij"[labs++ % 10]}`;
  await using made = new AsyncDisposableStack();
  const directory = mkdtempSync(path.join(tmpdir(), `${name}-`));
  made.defer(() => rmSync(directory, { recursive: true, force: true }));
  const underlay = made.use(await Underlay.open(kinds.length, name));
  const etcd = made.use(
    await startEtcd({
      members,
      tls: options.tls === true,
      addresses: underlay.storeAddresses.slice(0, members),
      machines: Array.from({ length: members }, () => underlay.store),
    }),
  );
  const prefix = "/coreos.com/network";
  const settings = {
    prefix,
    client: etcd.client,
    tls: writeSecrets(directory, etcd),
    ttlSeconds,
    podnetConfig: options.podnetConfig ?? "",
    masquerade: options.masquerade === true,
  };
  await etcd.etcdctl("put", `${prefix}/config`, JSON.stringify(overlay));
  const hosts = underlay.machines.map((machine, index) => {
    const place = path.join(directory, `${name}h${index + 1}`);
    return made.use(new OverlayLabHost(index + 1, kinds[index] as Kind, machine, place, settings));
  });
  const leases = async (): Promise<ReadonlyMap<string, string>> => {
    const shown = await etcd.etcdctl("get", "--prefix", `${prefix}/subnets/`, "-w", "json");
    const { kvs = [] } = JSON.parse(shown) as { kvs?: { key: string; value: string }[] };
    const plain = (text: string): string => Buffer.from(text, "base64").toString();
    return new Map(
      kvs.map(({ key, value }) => [plain(key).slice(`${prefix}/subnets/`.length), plain(value)]),
    );
  };
  const held = made.move();
  return {
    hosts,
    underlay,
    etcd,
    prefix,
    leases,
    async leaseOf(host) {
      const all = [...(await leases())];
      return all.find(([, value]) => value.includes(`"PublicIP":"${host.address}"`))?.[0];
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

function writeSecrets(directory: string, { client: { tls } }: EtcdLab) {
  if (tls === undefined) return undefined;
  const write = (name: string, text: unknown): string => {
    const file = path.join(directory, name);
    writeFileSync(file, String(text), { mode: 0o600 });
    return file;
  };
  return {
    ca: write("ca.pem", tls.ca),
    cert: write("cert.pem", tls.cert),
    key: write("key.pem", tls.key),
  };
}

/** Waits until each gets an answer from each of the others, IPv6 too where both have it. */
export async function meet(containers: readonly Container[], limitMs = 30_000): Promise<void> {
  for (const a of containers)
    for (const b of containers) {
      if (a === b) continue;
      for (const to of [b.address, ...(a.address6 === undefined ? [] : [b.address6])])
        if (to !== undefined) await reaches(a, to, limitMs);
    }
}

/** Waits until it gets an answer from there. */
export async function reaches(from: Container, to: string, limitMs = 30_000): Promise<void> {
  await until(`${from.address} to reach ${to}`, () => from.machine.reaches(to), limitMs);
}
