import type { Cidr, Ip, IpPrefix, Mac } from "../../../core/address.ts";
import type { IfName, NetworkName, PodId, PodName } from "../../../core/names.ts";
import type { Architecture } from "../../../hypervisor/architecture.ts";
import type { Capabilities, FoundMachine } from "../../../hypervisor/driver.ts";
import type { NamedLink } from "../../../network/model/observed.ts";
import type { Confinement } from "../../../hypervisor/process/confinement.ts";
import type { ImageUse } from "../../../hypervisor/disks/image-file.ts";
import type { PlannedSandbox } from "../interfaces/cni-plan.ts";
import type { AddressStatus } from "../../ipam/addresses.ts";
import type { FoundImage } from "../process/plan-process.ts";
import type { PortsSnapshot } from "../../published/ports-snapshot.ts";

/** The state of the host that the planner decides by, gathered beforehand. Plain data. */
export interface Snapshot {
  /** The id the pod will have. */
  readonly podId: PodId;
  /** The pod that has the asked (or default) name already. */
  readonly nameHolder?: PodId;
  /** Directory in which the machine's own directory is made. */
  readonly podsDir: string;
  /** Directory in which the pod's own disk files are made. */
  readonly disksDir: string;
  /** MiB that such a file may take unless its disk says; 0: as much as its disk is large. */
  readonly diskMaxMib?: number;
  readonly networks: readonly NetworkSnapshot[];
  /** The holders of requested MACs: a pod's id, or a container as messages name it. */
  readonly macHolders: Readonly<Record<Mac, string>>;
  /** The named links that exist: foreign bridges and taps, and links with requested tap names. */
  readonly links?: Readonly<Record<IfName, NamedLink>>;
  /** The holders of requested tap names, as messages name them. */
  readonly tapHolders?: Readonly<Record<IfName, string>>;
  /** The addresses of pods on the named foreign bridges. Absent without such bridges. */
  readonly onBridges?: readonly OnBridge[];
  /** Unused MACs, one per interface. */
  readonly freshMacs: readonly Mac[];
  /** The architecture of new machines. */
  readonly arch: Architecture;
  readonly defaultImage: ImageSnapshot;
  /** The confinement of the machine, with a user that no pod has; undefined when none is left. */
  readonly jail?: { readonly confinement: Confinement; readonly uid: number | undefined };
  /** How pods of the default image start by default. */
  readonly factory: "cold" | "template" | "pool";
  /** Kernel and initrd, by path. */
  readonly files: Readonly<Record<string, FileSnapshot>>;
  /** Bytes that are free in `disksDir`; absent where that does not matter or is not known. */
  readonly diskFreeBytes?: number;
  /** The spec's disks that are files, in the order of `disksAsked`. */
  readonly disks: readonly DiskSnapshot[];
  /** The directories of allowed files, as real paths; absent when all files are allowed. */
  readonly imagesWithin?: readonly string[];
  /**
   * Where disks must lie that are written through, as real paths; absent when they may lie
   * anywhere.
   */
  readonly writeWithin?: readonly string[];
  /** The spec's shares, in its order; absent where it has none. */
  readonly shares?: readonly ShareSnapshot[];
  /** Where shared directories must lie, as real paths; absent when they may lie anywhere. */
  readonly sharesWithin?: readonly string[];
  readonly writableWithin?: readonly string[];
  /** Nameservers a guest gets that asks for none, loopback ones among them. */
  readonly dns: {
    readonly servers: readonly Ip[];
    readonly search: readonly string[];
    readonly options: readonly string[];
    /** The domains of pod names, where these servers know them. */
    readonly domains?: readonly string[];
  };
  /** Lists of CNI plugins; absent where no interface names any. */
  readonly cni?: PlannedSandbox;
  /** The host's ports; absent where the spec publishes none. */
  readonly hostPorts?: PortsSnapshot;
  /** The foreign machine that is to get the interfaces; absent for podnet's own. */
  readonly machine?: Pick<FoundMachine, "type" | "accelerator" | "vcpu" | "memoryMib" | "places">;
  /** The driver's capabilities. */
  readonly driver: Pick<Capabilities, "nicSlots">;
  /** The image that the pod is made of. */
  readonly image?: FoundImage;
}

/** An address that a pod has on a foreign bridge. */
export interface OnBridge {
  readonly bridge: IfName;
  /** The VLAN, when it is a member of one alone. */
  readonly vlan: number | undefined;
  readonly address: IpPrefix;
  readonly tap: IfName;
  readonly podId: PodId;
  readonly podName: PodName;
}

export interface NetworkSnapshot {
  readonly name: NetworkName;
  readonly bridge: IfName;
  /** At least one, at most one of each address family, IPv4 first. */
  readonly subnets: readonly SubnetSnapshot[];
  readonly mtu: number;
  /** The bridge's MTU, when it is larger. */
  readonly bridgeMtu?: number;
  readonly isolated: boolean;
  /** Whether interfaces can be members of a VLAN. */
  readonly vlanFiltering: boolean;
  /** Ports the bridge has. */
  readonly ports: number;
}

export interface SubnetSnapshot {
  readonly cidr: Cidr;
  /** The bridge's own address. */
  readonly gateway: IpPrefix;
  /** The addresses handed out next, in order; empty when there is none left. */
  readonly nextFree: readonly Ip[];
  /** Which of `nextFree` nothing has had before, as far as is known. */
  readonly fresh?: readonly Ip[];
  /** The status of the requested addresses. */
  readonly asked: Readonly<Record<Ip, AddressStatus>>;
}

export type FileSnapshot =
  | {
      readonly kind: "file";
      readonly bytes: number;
      /** The identity of the file or device, whatever its path. */
      readonly image?: string;
      /** The pod that writes to it, by name. */
      readonly writer?: string;
      /** Without symbolic links, where it matters. */
      readonly real?: string;
    }
  /** The file is outside of the directories of allowed files. */
  | { readonly kind: "outside" }
  | { readonly kind: "missing" }
  | { readonly kind: "unreadable"; readonly why: string };

/** What a share's path leads to. */
export type ShareSnapshot =
  | { readonly kind: "directory"; readonly real: string }
  | { readonly kind: "outside" }
  | { readonly kind: "unusable"; readonly why: string };

/** The properties of a disk that the spec names. */
export type DiskSnapshot =
  | {
      readonly kind: "disk";
      /** The size that the guest sees; with qcow2 the file's size differs. */
      readonly bytes: number;
      /** The identity of the file or device, whatever its path. */
      readonly image: string;
      /** The current mark: see `imageMark`. */
      readonly mark: string;
      /** Without symbolic links, where it matters. */
      readonly real?: string;
      readonly writable: boolean;
      /** How a QEMU uses the file now. */
      readonly usedBy: ImageUse | undefined;
      /** Pods that use it, running or not, and the node itself. */
      readonly holders: readonly ImageHolder[];
    }
  | Exclude<FileSnapshot, { readonly kind: "file" }>;

export interface ImageHolder {
  /** The pod's name; absent for the node, which holds its default image. */
  readonly pod?: string;
  readonly use: ImageUse;
}

export interface ImageSnapshot {
  readonly kernel: string;
  readonly initrd: string;
  /** Memory below which this image does not boot. */
  readonly minMemoryMib: number;
}
