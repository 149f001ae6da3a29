import type { PodSpec } from "../../../api/pod-spec.ts";
import { cniAsked } from "../interfaces/kinds/cni.ts";
import { bridgeAsked } from "../interfaces/kinds/bridge.ts";
import { findList } from "../../../cni/runtime/find-list.ts";
import { conflistOf } from "../../../cni/runtime/list.ts";
import { type Mac, macFromRandom } from "../../../core/address.ts";
import { toPodnetError } from "../../../core/errors.ts";
import type { IfName, PodId } from "../../../core/names.ts";
import type { Confinement } from "../../../hypervisor/process/confinement.ts";
import { usersLeft } from "../../../hypervisor/jail/cgroup.ts";
import { freeUid } from "../../../hypervisor/jail/uids.ts";
import { leastMemoryMib } from "../../../hypervisor/argv/preflight.ts";
import type { NamedLink } from "../../../network/model/observed.ts";
import type { Config } from "../../config/config.ts";
import { containerByMac } from "../../ipam/holders.ts";
import type { Database } from "../../store/database.ts";
import { podByMac, podByTap } from "../store/interfaces.ts";
import { podIdByName, podIds, podNameById } from "../store/pods.ts";
import { addressesOnBridge, uidsOfPods } from "../store/stored-plans.ts";
import { diskSnapshots, freeBytesOf } from "./gather-disks.ts";
import { fileSnapshots, realPath } from "./gather-files.ts";
import { dnsSnapshot, type NetworksWorld, networkSnapshots } from "./gather-networks.ts";
import { gatherPorts } from "../../published/gather-ports.ts";
import { type ImageHolders, imageHolders } from "./image-holders.ts";
import { shareSnapshots } from "./plan-shares.ts";
import type { FoundImage } from "../process/plan-process.ts";
import { defaultPodName } from "./plan.ts";
import type { FoundSandbox } from "../interfaces/cni-plan.ts";
import type { OnBridge, Snapshot } from "./snapshot.ts";

export interface World extends NetworksWorld {
  readonly config: Config;
  readonly driver: Snapshot["driver"];
  readonly confinement?: Confinement | undefined;
  /**
   * Whether the caller may name only files of `access.image_paths`, and those of the default image.
   */
  readonly imagesOnly: boolean;
  /** The links of the host that the spec names, as they were a moment ago. */
  readonly links: Readonly<Record<IfName, NamedLink>>;
  /** The foreign machine, as it was a moment ago. */
  readonly machine?: Snapshot["machine"];
  /** Users of machines that are no pod's. */
  readonly usersTaken?: ReadonlySet<number>;
  /** The user of the machine that the pod is to have; one that is free unless given. */
  readonly uid?: number | undefined;
  /** The image that the pod is made of. */
  readonly image?: FoundImage;
  randomBytes(count: number): Uint8Array;
}

/**
 * Looks at everything the planner needs to know for this spec. Takes nothing and changes nothing.
 */
export function gatherSnapshot(spec: PodSpec, podId: PodId, world: World): Snapshot {
  const { db, config } = world;
  const nameHolder = podIdByName(db, spec.name ?? defaultPodName(podId));
  const defaultImage = { ...config.image, minMemoryMib: leastMemoryMib };
  const { kernel, initrd } = config.image;
  const within = (paths: readonly string[]): string[] | undefined =>
    world.imagesOnly ? [...new Set(paths.map(realPath))] : undefined;
  // Who may create pods may use each image of the store.
  const ofImage = world.image === undefined ? [] : [world.image.file];
  const imagesWithin = within([...config.imagePaths, kernel, initrd, ...ofImage]);
  const writeWithin = within(config.writeThroughPaths);
  const sharesWithin = within(config.sharePaths);
  const writableWithin = config.writableSharePaths.map(realPath);
  // Looked up only for a spec that names files: it asks for every pod's files.
  let found: ImageHolders | undefined;
  const holders = (): ImageHolders => (found ??= imageHolders(db, config.image));
  return {
    podId,
    ...(nameHolder === undefined ? {} : { nameHolder }),
    podsDir: config.podsDir,
    disksDir: config.disksDir,
    diskMaxMib: config.diskMaxMib,
    networks: networkSnapshots(spec, world),
    macHolders: macHolders(spec, db),
    links: world.links,
    tapHolders: tapHolders(spec, db),
    onBridges: onBridges(spec, db),
    freshMacs: freshMacs(spec.interfaces.length, world),
    arch: config.qemu.arch,
    defaultImage,
    factory: config.factory,
    files: fileSnapshots(spec, defaultImage, {
      arch: config.qemu.arch,
      byOthers: world.confinement !== undefined,
      imagesWithin,
      holders,
    }),
    disks: diskSnapshots(spec, holders, imagesWithin, writeWithin),
    ...diskRoom(spec, config),
    ...(imagesWithin === undefined ? {} : { imagesWithin }),
    ...(writeWithin === undefined ? {} : { writeWithin }),
    shares: shareSnapshots(spec, sharesWithin, writableWithin),
    ...(sharesWithin === undefined ? {} : { sharesWithin }),
    writableWithin,
    ...jailSnapshot(world),
    dns: dnsSnapshot(spec, world.networks),
    ...cniSnapshot(spec, config),
    ...(spec.ports === undefined ? {} : { hostPorts: gatherPorts(spec.ports, world) }),
    ...(world.machine === undefined ? {} : { machine: world.machine }),
    driver: world.driver,
    ...(world.image === undefined ? {} : { image: world.image }),
  };
}

/** Looked at only for a spec that podnetd is to make disks for. */
function diskRoom(
  { boot, disks = [] }: PodSpec,
  { disksDir }: Config,
): Pick<Snapshot, "diskFreeBytes"> {
  const sizes = [boot.layer?.mib, ...disks.map(({ sizeMib }) => sizeMib)];
  if (sizes.every((size) => size === undefined)) return {};
  const diskFreeBytes = freeBytesOf(disksDir);
  return diskFreeBytes === undefined ? {} : { diskFreeBytes };
}

/** Throws `CONFIG_INVALID` with the field when there is no such list. */
function cniSnapshot({ interfaces }: PodSpec, { netnsDir, cni }: Config): Pick<Snapshot, "cni"> {
  const lists: Record<string, FoundSandbox> = {};
  const passedOver: string[] = [];
  interfaces.forEach((each, i) => {
    const asked = cniAsked(each);
    if (asked === undefined || asked.netns !== undefined) return;
    const { list: name } = asked;
    try {
      const { list, file, warnings } = findList(cni.runtime.listDir, name);
      lists[name ?? ""] = { file, list: conflistOf(list) };
      passedOver.push(...warnings);
    } catch (thrown) {
      throw toPodnetError(thrown).with({ field: `interfaces[${i}].cni.list` });
    }
  });
  return Object.keys(lists).length === 0 ? {} : { cni: { netnsDir, lists, passedOver } };
}

function macHolders(spec: PodSpec, db: Database): Record<Mac, string> {
  const holders: Record<Mac, string> = {};
  for (const { mac } of spec.interfaces) {
    const holder = mac === undefined ? undefined : holderOf(mac, db);
    if (mac !== undefined && holder !== undefined) holders[mac] = holder;
  }
  return holders;
}

function holderOf(mac: Mac, db: Database): string | undefined {
  const container = containerByMac(db, mac);
  return podByMac(db, mac) ?? (container === undefined ? undefined : `container "${container}"`);
}

function tapHolders(spec: PodSpec, db: Database): Record<IfName, string> {
  const holders: Record<IfName, string> = {};
  for (const { tap } of spec.interfaces) {
    const holder = tap === undefined ? undefined : podByTap(db, tap);
    if (tap !== undefined && holder !== undefined)
      holders[tap] = `pod "${podNameById(db, holder) ?? holder}"`;
  }
  return holders;
}

/**
 * Addresses that pods have on foreign bridges. podnetd hands out none there, so the plans name them
 * and no lease does.
 */
function onBridges({ interfaces }: PodSpec, db: Database): OnBridge[] {
  const bridges = new Set(interfaces.flatMap((each) => bridgeAsked(each) ?? []));
  return [...bridges].flatMap((bridge) => addressesOnBridge(db, bridge));
}

function freshMacs(interfaces: number, { db, randomBytes }: World): Mac[] {
  const macs = new Set<Mac>();
  while (macs.size < 2 * interfaces) {
    const mac = macFromRandom(randomBytes(4));
    if (holderOf(mac, db) === undefined) macs.add(mac);
  }
  return [...macs];
}

function jailSnapshot({
  db,
  confinement,
  usersTaken = new Set(),
  uid,
}: World): Pick<Snapshot, "jail"> {
  if (confinement === undefined) return {};
  if (uid !== undefined) return { jail: { confinement, uid } };
  const taken = new Set([
    ...uidsOfPods(db),
    ...usersLeft(confinement.cgroups, podIds(db)),
    ...usersTaken,
  ]);
  return { jail: { confinement, uid: freeUid(confinement.uids, taken) } };
}
