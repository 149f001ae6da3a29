import type { Cidr, Ip, IpPrefix, Mac } from "../../../core/address.ts";
import type { IfName, NetworkName, PodId, PodName } from "../../../core/names.ts";
import type { Architecture } from "../../../hypervisor/architecture.ts";
import type { Capabilities, FoundMachine } from "../../../hypervisor/driver.ts";
import type { NamedLink } from "../../../network/model/observed.ts";
import type { Confinement } from "../../../hypervisor/process/confinement.ts";
import type { ImageUse } from "../../../hypervisor/disks/image-file.ts";
import type { PlannedSandbox } from "../interfaces/cni-plan.ts";
import type { AddressStatus } from "../../ipam/addresses.ts";
import type { PortsSnapshot } from "../../published/ports-snapshot.ts";

/** What the planner may know of the world, gathered beforehand. Plain data. */
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
  /** Who has a MAC that is asked for: a pod's id, or a container as messages say it. */
  readonly macHolders: Readonly<Record<Mac, string>>;
  /**
   * The links that are named, as far as they are there: bridges and taps of others, names of taps.
   */
  readonly links?: Readonly<Record<IfName, NamedLink>>;
  /** Who has a tap name that is asked for, as messages say it. */
  readonly tapHolders?: Readonly<Record<IfName, string>>;
  /** What pods have on the bridges of others that are named. Absent where none is. */
  readonly onBridges?: readonly OnBridge[];
  /** Unused MACs, one per interface. */
  readonly freshMacs: readonly Mac[];
  /** What new machines are of. */
  readonly arch: Architecture;
  readonly defaultImage: ImageSnapshot;
  /** How the machine is to be shut in, as a user that no pod has; undefined when none is left. */
  readonly jail?: { readonly confinement: Confinement; readonly uid: number | undefined };
  /** How pods of the default image start that do not say. */
  readonly factory: "cold" | "template";
  /** Kernel and initrd, by path. */
  readonly files: Readonly<Record<string, FileSnapshot>>;
  /** The spec's disks, in its order. */
  readonly disks: readonly DiskSnapshot[];
  /** Where they must lie, as real paths; absent when they may lie anywhere. */
  readonly imagesWithin?: readonly string[];
  /**
   * Where disks must lie that are written through, as real paths; absent when they may lie
   * anywhere.
   */
  readonly writeWithin?: readonly string[];
  /** Nameservers a guest gets that asks for none, loopback ones among them. */
  readonly dns: {
    readonly servers: readonly Ip[];
    readonly search: readonly string[];
    readonly options: readonly string[];
    /** What names of pods end with, where these servers know them. */
    readonly domains?: readonly string[];
  };
  /** Lists of CNI plugins; absent where no interface names any. */
  readonly cni?: PlannedSandbox;
  /** The host's ports; absent where none are to be published. */
  readonly hostPorts?: PortsSnapshot;
  /** The foreign machine that is to have the interfaces; absent for one of podnet's own. */
  readonly machine?: Pick<FoundMachine, "type" | "accelerator" | "vcpu" | "memoryMib" | "places">;
  /** What the driver can do. */
  readonly driver: Pick<Capabilities, "nicSlots">;
}

/** An address that a pod has on a foreign bridge. */
export interface OnBridge {
  readonly bridge: IfName;
  /** Where it is a member of one alone. */
  readonly vlan: number | undefined;
  readonly address: IpPrefix;
  readonly tap: IfName;
  readonly podId: PodId;
  readonly podName: PodName;
}

export interface NetworkSnapshot {
  readonly name: NetworkName;
  readonly bridge: IfName;
  /** One of each address family at most, IPv4 first; one at least. */
  readonly subnets: readonly SubnetSnapshot[];
  readonly mtu: number;
  /** Of the bridge, where it carries more than that. */
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
  /** What is known of addresses that are asked for. */
  readonly asked: Readonly<Record<Ip, AddressStatus>>;
}

export type FileSnapshot =
  | {
      readonly kind: "file";
      readonly bytes: number;
      /** Which file or device it is, whatever its path. */
      readonly image?: string;
      /** The pod that writes to it, by name. */
      readonly writer?: string;
      /** Without symbolic links, where it matters. */
      readonly real?: string;
    }
  /** Not among what may be named. */
  | { readonly kind: "outside" }
  | { readonly kind: "missing" }
  | { readonly kind: "unreadable"; readonly why: string };

/** What is known of a disk that the spec names. */
export type DiskSnapshot =
  | {
      readonly kind: "disk";
      /** As large as it is to a guest, which of qcow2 is another size than the file's. */
      readonly bytes: number;
      /** Which file or device it is, whatever its path. */
      readonly image: string;
      /** As it is now: see `imageMark`. */
      readonly mark: string;
      /** Without symbolic links, where it matters. */
      readonly real?: string;
      readonly writable: boolean;
      /** What some QEMU does with it now. */
      readonly usedBy: ImageUse | undefined;
      /** Pods that use it, running or not, and the node itself. */
      readonly holders: readonly ImageHolder[];
    }
  | Exclude<FileSnapshot, { readonly kind: "file" }>;

export interface ImageHolder {
  /** By name; absent for the node, whose default image it is. */
  readonly pod?: string;
  readonly use: ImageUse;
}

export interface ImageSnapshot {
  readonly kernel: string;
  readonly initrd: string;
  /** Memory below which this image does not boot. */
  readonly minMemoryMib: number;
}
