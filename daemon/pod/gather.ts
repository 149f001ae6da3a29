import { accessSync, constants, realpathSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
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
import { usersLeft } from "../../hypervisor/jail/cgroup.ts";
import { freeUid } from "../../hypervisor/jail/uids.ts";
import { isAllowed } from "../../hypervisor/qemu/allowed-files.ts";
import { gatherPorts } from "./gather-ports.ts";
import { leastMemoryMib, readableByOthers } from "../../hypervisor/qemu/preflight.ts";
import type { Config, NetworkConfig } from "../config/config.ts";
import { readHostDns } from "../host-dns.ts";
import type { Database } from "../store/database.ts";
import { countInterfaces, podByMac } from "../store/interfaces.ts";
import { getPod, podIdByName, podIds, uidsOfPods } from "../store/pods.ts";
import type { Addresses } from "./addresses.ts";
import { defaultPodName } from "./plan.ts";
import type {
  AddressStatus,
  FileSnapshot,
  ImageSnapshot,
  NetworkSnapshot,
  Snapshot,
  SubnetSnapshot,
} from "./snapshot.ts";

export interface World {
  readonly db: Database;
  readonly config: Config;
  readonly addresses: Addresses;
  readonly driver: Snapshot["driver"];
  readonly confinement?: Confinement | undefined;
  /** Whether the pod is for somebody who may name files of `access.image_paths` alone, and those of the default image. */
  readonly imagesOnly: boolean;
  randomBytes(count: number): Uint8Array;
}

/** Looks at everything the planner needs to know for this spec. Takes nothing and changes nothing. */
export function gatherSnapshot(spec: PodSpec, podId: PodId, world: World): Snapshot {
  const { db, config } = world;
  const nameHolder = podIdByName(db, spec.name ?? defaultPodName(podId));
  const defaultImage = { ...config.image, minMemoryMib: leastMemoryMib };
  const { kernel, initrd } = config.image;
  const imagesWithin = world.imagesOnly
    ? [...new Set([...config.imagePaths, kernel, initrd].map(realPath))]
    : undefined;
  return {
    podId,
    ...(nameHolder === undefined ? {} : { nameHolder }),
    podsDir: config.podsDir,
    networks: [networkSnapshot(config.network, spec, world)],
    macHolders: macHolders(spec, db),
    freshMacs: freshMacs(spec.interfaces.length, world),
    defaultImage,
    factory: config.factory,
    files: fileSnapshots(spec, defaultImage, {
      byOthers: world.confinement !== undefined,
      imagesWithin,
    }),
    ...(imagesWithin === undefined ? {} : { imagesWithin }),
    ...(spec.ports === undefined ? {} : { hostPorts: gatherPorts(spec.ports, world) }),
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
  const subnet: SubnetSnapshot = {
    cidr: network.cidr,
    gateway: network.gateway,
    // Twice as many as interfaces: each automatic one may have to pass by an address another one asks for.
    nextFree: addresses.nextFree(network.name, 2 * spec.interfaces.length),
    asked,
  };
  return {
    name: network.name,
    bridge: network.bridge,
    subnets: [subnet],
    mtu: network.mtu,
    isolated: false,
    vlanFiltering: false,
    ports: countInterfaces(db, network.name),
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
  const taken = new Set([...uidsOfPods(db), ...usersLeft(confinement.cgroups, podIds(db))]);
  return { jail: { confinement, uid: freeUid(confinement.uids, taken) } };
}

interface Looking {
  /** Whether kernel and initrd are opened by a QEMU that is a user of its own. */
  readonly byOthers: boolean;
  readonly imagesWithin: readonly string[] | undefined;
}

function fileSnapshots(
  { boot: { kernel, initrd, disks } }: PodSpec,
  image: ImageSnapshot,
  looking: Looking,
): Record<string, FileSnapshot> {
  const booted = [kernel ?? image.kernel, initrd ?? image.initrd];
  // Disks are opened by podnetd, which hands them over.
  const files = [
    ...disks.map(({ path }) => [path, lookAtFile(path, { ...looking, byOthers: false })] as const),
    ...booted.map((path) => [path, lookAtFile(path, looking)] as const),
  ];
  return Object.fromEntries(files);
}

function lookAtFile(path: string, { byOthers, imagesWithin }: Looking): FileSnapshot {
  const real = imagesWithin === undefined ? path : realPath(path);
  // Not even whether it is there is told of what may not be named.
  if (imagesWithin !== undefined && !isAllowed(real, imagesWithin)) return { kind: "outside" };
  try {
    const stats = statSync(real);
    if (!stats.isFile() && !stats.isBlockDevice())
      return { kind: "unreadable", why: "it is no file" };
    accessSync(real, constants.R_OK);
    if (byOthers && !readableByOthers(stats))
      return { kind: "unreadable", why: "machines run as users of their own (chmod o+r)" };
    if (stats.isFile() && stats.size === 0) return { kind: "unreadable", why: "it is empty" };
    return { kind: "file", bytes: stats.size, ...(imagesWithin === undefined ? {} : { real }) };
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    return code === "ENOENT" || code === "ENOTDIR"
      ? { kind: "missing" }
      : { kind: "unreadable", why: code ?? "unknown" };
  }
}

/** A path without symbolic links, as far as it is there. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realPath(parent), basename(path));
  }
}

function dnsSnapshot(network: NetworkConfig): Snapshot["dns"] {
  if (network.dns.length > 0)
    return { servers: network.dns, search: network.dnsSearch, options: [] };
  const host = readHostDns();
  return { ...host, search: network.dnsSearch.length > 0 ? network.dnsSearch : host.search };
}
