import { type Cidr, type Ip, ipOf, type IpPrefix, type Mac } from "../core/address.ts";
import type { IfName, NetworkName, PodName } from "../core/names.ts";
import type { RateLimits } from "../core/rate-limits.ts";

/** A pod as asked for, every field checked: what the planner works from. Plain JSON. */
export interface PodSpec {
  /** Undefined lets the daemon choose `pod-` and the start of the id. */
  readonly name?: PodName;
  readonly labels: Readonly<Record<string, string>>;
  readonly resources: ResourcesSpec;
  readonly boot: BootSpec;
  /** Never empty: none given means one automatic interface. */
  readonly interfaces: readonly InterfaceSpec[];
  readonly hostname?: string;
  /** Undefined inherits the host's servers, without those on loopback. */
  readonly dns?: DnsSpec;
  readonly routes: readonly RouteSpec[];
  /** Absent in specs of an earlier podnetd, and where none are published. */
  readonly ports?: readonly PortSpec[];
  /** Rules of its own, as a policy file has them; `policy/` reads them. Absent: none. */
  readonly policy?: InlineRules;
  /** Absent: none. */
  readonly files?: readonly FileSpec[];
  /** Directories of the host. Absent: none. */
  readonly shares?: readonly ShareSpec[];
  /** Undefined: the image's, where there is one. */
  readonly process?: ProcessSpec;
  /** Undefined: the pod stays as it has ended. */
  readonly restart?: RestartSpec;
  /** Undefined: the pod ends by no time. */
  readonly lifetime?: LifetimeSpec;
  /** In addition to those of `boot`. Absent: none. What the pod has of them now its plan says. */
  readonly disks?: readonly DataDiskSpec[];
  /** The VM is foreign: of `resources` and `boot` only `boot.agent` has a meaning. */
  readonly attached?: AttachSpec;
  /** The pod is a sandbox of Kubernetes' runtime interface; absent: it is not. */
  readonly sandbox?: SandboxSpec;
  /** The pod was created by hyperd's API; absent: it was not. */
  readonly hyperd?: HyperdSpec;
}

/** A machine's size, and how large it may become while it runs where that is more. */
export interface ResourcesSpec {
  readonly vcpu: number;
  readonly memoryMib: number;
  readonly maxVcpu?: number;
  readonly maxMemoryMib?: number;
}

/** What a caller of hyperd's API said of a pod, returned to it unchanged. */
export interface HyperdSpec {
  /** Absent: the pod's name. */
  readonly id?: string;
  /** Names of the volumes that its containers may have. Absent: none. */
  readonly volumes?: readonly string[];
  /** Paths of the host that volumes have copies of, by their names. Absent: none. */
  readonly sources?: Readonly<Record<string, string>>;
  /** Of its port mappings, of which its rules were made. Absent: none. */
  readonly whiteLists?: WhiteLists;
  /** The one that is its main process. */
  readonly container?: {
    readonly name: string;
    readonly image: string;
    readonly labels: Readonly<Record<string, string>>;
  };
}

/** Networks that may reach all ports of a pod, and those that may reach its mapped ports. */
export interface WhiteLists {
  readonly internal: readonly string[];
  readonly external: readonly string[];
}

/** What a caller of the runtime interface (CRI) said of a pod, returned to it unchanged. */
export interface SandboxSpec {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly namespace: string;
    readonly attempt: number;
  };
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** Empty: the usual one. */
  readonly handler: string;
  /** Where logs of its containers go. */
  readonly logDirectory: string;
  /** Files below /proc/sys of its machine, and what is written to them. */
  readonly sysctls?: readonly (readonly [string, string])[];
  /** What of a pod's namespaces its containers share, by the interface's numbers. */
  readonly namespaces: { readonly network: number; readonly pid: number; readonly ipc: number };
}

/** What ends a pod by itself. */
export interface LifetimeSpec {
  /** From the create, and from each start by a caller. */
  readonly ttlMs?: number;
  /** The pod is deleted then; else it is stopped. */
  readonly ttlDelete: boolean;
  /** Without traffic or callers, while it runs. */
  readonly idleStopMs?: number;
}

/** A directory of the host that the guest reads. */
export interface ShareSpec {
  readonly hostPath: string;
  /** Where the guest has it. */
  readonly path: string;
  /** The guest writes to it, too, as its owner. */
  readonly writable?: true;
}

/** A file that the agent writes at each boot of the guest. */
export interface FileSpec {
  readonly path: string;
  /** Base64. Only for the guest: not shown, not logged. */
  readonly content: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
}

/** What a policy file has without `name` and `applies_to`: plain JSON. */
export type InlineRules = Readonly<Record<string, unknown>>;

/** Sockets of a foreign machine. */
export interface AttachSpec {
  readonly qmp: string;
  /** Undefined: no agent. */
  readonly channel?: string;
  /** Undefined: nothing can be run in the guest. */
  readonly tty?: string;
}

/** Ports of the pod that can be reached at the host, `count` of them one after the other. */
export interface PortSpec {
  /**
   * Undefined: 127.0.0.1 and ::1. `*`: every address of both families; 0.0.0.0 or ::: every one of
   * a family.
   */
  readonly hostIp?: Ip | "*";
  /** 0: podnet chooses. */
  readonly hostPort: number;
  readonly podPort: number;
  readonly count: number;
  readonly protocol: "tcp" | "udp" | "sctp";
}

export interface BootSpec {
  /**
   * A path, or `none`: the first disk starts by itself. Undefined takes the configured default
   * image.
   */
  readonly kernel?: string;
  /** A path, or `none`. */
  readonly initrd?: string;
  readonly cmdline: string;
  readonly disks: readonly {
    readonly path: string;
    readonly format: "raw" | "qcow2";
    readonly readOnly: boolean;
    /**
     * The pod writes to the image itself. A spec of an earlier podnetd does not say: its plan does.
     */
    readonly writeThrough?: true;
    /** MiB that the pod's own file may take at the most; undefined: as the node is set up. */
    readonly maxMib?: number;
  }[];
  /** Undefined leaves it to the node. */
  readonly factory?: "cold" | "template" | "pool";
  /**
   * Who configures the guest from within; undefined: podnet's agent, or a hyperstart that says so
   * itself.
   */
  readonly agent?: "hyperstart" | "none";
  /** What the seed disk says; undefined: there is none. */
  readonly cloudInit?: CloudInitSpec;
  /** An image in the store, whose files are the guest's root. */
  readonly image?: string;
  /** The writable layer over an image's root is on a disk; undefined: in memory. */
  readonly layer?: LayerSpec;
}

/** A writable layer that outlasts its machine. */
interface LayerSpec {
  /** Undefined: as the node is set up. */
  readonly mib?: number;
}

/** A disk that is plugged into a running pod: a file, or an empty one that podnetd makes. */
export interface DataDiskSpec {
  /** Undefined: podnetd chooses. */
  readonly name?: string;
  readonly file?: Pick<BootSpec["disks"][number], "path" | "format">;
  /** Instead of a file. */
  readonly sizeMib?: number;
  readonly readOnly: boolean;
}

/** The main process; what is undefined is as the image has it. */
export interface ProcessSpec {
  readonly args?: readonly string[];
  readonly entrypoint?: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly workdir?: string;
  /** `user` or `user:group`. */
  readonly user?: string;
  readonly terminal: boolean;
  readonly stdin: boolean;
  readonly stopSignal?: number;
  readonly stopTimeoutMs?: number;
  /** A create does not start it: a start of the pod, which runs by then, does. */
  readonly deferred?: true;
}

export interface RestartSpec {
  readonly policy: "on-failure" | "always";
  /** Times in a row; undefined: without a limit. */
  readonly max?: number;
}

export interface CloudInitSpec {
  /** Only for the guest: not shown, not logged. */
  readonly userData: string;
}

/** An interface, by where it leads. Without a kind it is on a network of podnet's. */
export type InterfaceSpec = InterfaceChoices &
  (
    | { readonly kind?: undefined; readonly network: NetworkName }
    /** On a foreign bridge. */
    | { readonly kind: "bridge"; readonly bridge: IfName }
    /** By a foreign tap, which stays. */
    | { readonly kind: "tap"; readonly tap: IfName }
    /** Addresses on the guest's own `lo`. */
    | { readonly kind: "loopback" }
    /** In the place of a link that CNI plugins made. */
    | { readonly kind: "cni"; readonly cni: CniSpec }
  );

/** Where a link of CNI plugins comes from. */
export interface CniSpec {
  /** The link in the namespace. */
  readonly link: IfName;
  /** A foreign namespace; absent: podnet makes one, and runs plugins. */
  readonly netns?: string;
  /** Name of the network; undefined is that of the first list that is good. */
  readonly list?: string;
  readonly args: Readonly<Record<string, string>>;
  /** By the names of capabilities. */
  readonly capabilities: Readonly<Record<string, unknown>>;
}

/** What of an interface can be chosen. */
export interface InterfaceChoices {
  /**
   * Undefined takes the next free one of each of the network's pools, an empty list none. A bare
   * address gets its network's length; where there is no network each has one.
   */
  readonly addresses?: readonly (Ip | IpPrefix)[];
  readonly mac?: Mac;
  readonly mtu?: number;
  /** Asks for a default route by this gateway. */
  readonly gateway?: Ip;
  /** Of the default route; alone it asks for that of the network. */
  readonly metric?: number;
  /** Undefined is `eth` and the interface's position. */
  readonly guestName?: IfName;
  /** The host's end; undefined is made of the pod's id. */
  readonly tap?: IfName;
  readonly port?: PortChoices;
}

/** How a tap is a port of its bridge; what is absent is as the network or the bridge has it. */
export interface PortChoices {
  /** Untagged member of this VLAN alone. */
  readonly vlan?: number;
  readonly isolated?: boolean;
  readonly learning?: boolean;
  /** Its guest may send anything. */
  readonly guard?: false;
  readonly limits?: RateLimits;
}

export interface DnsSpec {
  /** Empty takes those of the network, else of the host, without loopback ones. */
  readonly servers: readonly Ip[];
  readonly search: readonly string[];
  readonly options: readonly string[];
}

export interface RouteSpec {
  readonly destination: Cidr;
  readonly gateway?: Ip;
  /** Guest name of the interface; undefined is the one whose network holds the gateway. */
  readonly interface?: string;
  /** Undefined is the kernel's choice. */
  readonly metric?: number;
}

export const hasLength = (address: Ip | IpPrefix): address is IpPrefix => address.includes("/");
export const bareIp = (address: Ip | IpPrefix): Ip =>
  hasLength(address) ? ipOf(address) : address;

/** A spec as it was stored; an earlier podnetd's interfaces had one address at most. */
export function storedSpec(spec: PodSpec): PodSpec {
  return { ...spec, interfaces: spec.interfaces.map(storedInterface) };
}

function storedInterface(
  stored: InterfaceSpec & { readonly address?: Ip | IpPrefix },
): InterfaceSpec {
  const { address, ...spec } = stored;
  return address === undefined ? spec : { ...spec, addresses: [address] };
}
