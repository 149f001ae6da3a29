import { accessSync, constants, statSync } from "node:fs";
import type { PodSpec } from "../../api/pod-spec.ts";
import {
  contains,
  type Ip,
  type IpPrefix,
  ipOf,
  type Mac,
  macFromRandom,
} from "../../core/address.ts";
import type { PodId } from "../../core/names.ts";
import type { Confinement } from "../../hypervisor/jail/confinement.ts";
import { freeUid } from "../../hypervisor/jail/uids.ts";
import { leastMemoryMib, readableByOthers } from "../../hypervisor/qemu/preflight.ts";
import type { Config, NetworkConfig } from "../config/config.ts";
import { readHostDns } from "../host-dns.ts";
import type { Database } from "../store/database.ts";
import { countInterfaces, podByMac } from "../store/interfaces.ts";
import { getPod, podIdByName, uidsOfPods } from "../store/pods.ts";
import type { Addresses } from "./addresses.ts";
import { defaultPodName } from "./plan.ts";
import type {
  AddressStatus,
  FileSnapshot,
  ImageSnapshot,
  NetworkSnapshot,
  Snapshot,
} from "./snapshot.ts";

export interface World {
  readonly db: Database;
  readonly config: Config;
  readonly addresses: Addresses;
  readonly driver: Snapshot["driver"];
  readonly confinement?: Confinement | undefined;
  randomBytes(count: number): Uint8Array;
}

/** Looks at everything the planner needs to know for this spec. Takes nothing and changes nothing. */
export function gatherSnapshot(spec: PodSpec, podId: PodId, world: World): Snapshot {
  const { db, config } = world;
  const nameHolder = podIdByName(db, spec.name ?? defaultPodName(podId));
  const defaultImage = { ...config.image, minMemoryMib: leastMemoryMib };
  return {
    podId,
    ...(nameHolder === undefined ? {} : { nameHolder }),
    podsDir: config.podsDir,
    networks: [networkSnapshot(config.network, spec, world)],
    macHolders: macHolders(spec, db),
    freshMacs: freshMacs(spec.interfaces.length, world),
    defaultImage,
    factory: config.factory,
    files: fileSnapshots(spec, defaultImage, world.confinement !== undefined),
    ...jailSnapshot(world),
    dns: dnsSnapshot(config.network),
    driver: world.driver,
  };
}

function networkSnapshot(
  network: NetworkConfig,
  spec: PodSpec,
  { db, addresses }: World,
): NetworkSnapshot {
  const asked: Record<Ip, AddressStatus> = {};
  for (const { address } of spec.interfaces) {
    if (address === undefined) continue;
    const ip = address.includes("/") ? ipOf(address as IpPrefix) : (address as Ip);
    if (contains(network.cidr, ip)) asked[ip] = named(addresses.status(network.name, ip), db);
  }
  return {
    name: network.name,
    bridge: network.bridge,
    cidr: network.cidr,
    gateway: network.gateway,
    mtu: network.mtu,
    isolated: false,
    ports: countInterfaces(db, network.name),
    // Twice as many as interfaces: each automatic one may have to pass by an address another one asks for.
    nextFree: addresses.nextFree(network.name, 2 * spec.interfaces.length),
    asked,
  };
}

/** A holder as people know it: pods by their name. */
function named(status: AddressStatus, db: Database): AddressStatus {
  if (status.kind !== "held") return status;
  const podId = /^pod ([a-z2-7]{12})\//.exec(status.by)?.[1];
  const pod = podId === undefined ? undefined : getPod(db, podId as PodId);
  return pod === undefined ? status : { kind: "held", by: `pod "${pod.name}"` };
}

function macHolders(spec: PodSpec, db: Database): Record<Mac, PodId> {
  const holders: Record<Mac, PodId> = {};
  for (const { mac } of spec.interfaces) {
    const holder = mac === undefined ? undefined : podByMac(db, mac);
    if (mac !== undefined && holder !== undefined) holders[mac] = holder;
  }
  return holders;
}

function freshMacs(interfaces: number, { db, randomBytes }: World): Mac[] {
  const macs = new Set<Mac>();
  while (macs.size < 2 * interfaces) {
    const mac = macFromRandom(randomBytes(4));
    if (podByMac(db, mac) === undefined) macs.add(mac);
  }
  return [...macs];
}

function jailSnapshot({ db, confinement }: World): Pick<Snapshot, "jail"> {
  if (confinement === undefined) return {};
  return { jail: { confinement, uid: freeUid(confinement.uids, uidsOfPods(db)) } };
}

function fileSnapshots(
  spec: PodSpec,
  image: ImageSnapshot,
  confined: boolean,
): Record<string, FileSnapshot> {
  const { kernel, initrd, disks } = spec.boot;
  // Disks are opened by podnetd, which hands them over.
  const files = [
    ...disks.map(({ path }) => fileSnapshot(path, false)),
    ...[kernel ?? image.kernel, initrd ?? image.initrd].map((path) => fileSnapshot(path, confined)),
  ];
  return Object.fromEntries(files);
}

function fileSnapshot(path: string, byOthers: boolean): [string, FileSnapshot] {
  return [path, lookAtFile(path, byOthers)];
}

function lookAtFile(path: string, byOthers: boolean): FileSnapshot {
  try {
    const stats = statSync(path);
    if (!stats.isFile() && !stats.isBlockDevice())
      return { kind: "unreadable", why: "it is no file" };
    accessSync(path, constants.R_OK);
    if (byOthers && !readableByOthers(stats))
      return { kind: "unreadable", why: "machines run as users of their own (chmod o+r)" };
    if (stats.isFile() && stats.size === 0) return { kind: "unreadable", why: "it is empty" };
    return { kind: "file", bytes: stats.size };
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    return code === "ENOENT" || code === "ENOTDIR"
      ? { kind: "missing" }
      : { kind: "unreadable", why: code ?? "unknown" };
  }
}

function dnsSnapshot(network: NetworkConfig): Snapshot["dns"] {
  if (network.dns.length > 0)
    return { servers: network.dns, search: network.dnsSearch, options: [] };
  const host = readHostDns();
  return { ...host, search: network.dnsSearch.length > 0 ? network.dnsSearch : host.search };
}
