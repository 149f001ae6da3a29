import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";

/**
 * podnet's extension of hyperstart's protocol. The host asks with `HELLO` (100), which a hyperstart
 * answers with ERROR as it does any unknown code; our agent answers ACK with a `HelloReply`.
 */
export const extensionCodes = {
  hello: 100,
  configure: 101,
  awake: 102,
  placeFile: 103,
  preload: 104,
  mountShare: 105,
  steps: 106,
  startMain: 110,
  followMain: 111,
  signalMain: 112,
  resizeMain: 113,
  /** Guest to host, unasked. */
  mainEnded: 114,
  createContainer: 120,
  containerFile: 121,
  startContainer: 122,
  followContainer: 123,
  signalContainer: 124,
  resizeContainer: 125,
  /** Removes one whatever its state is; an absent one is removed. */
  endContainer: 126,
  listContainers: 127,
  /** Guest to host, unasked. */
  containerEnded: 128,
  containerVolume: 129,
  limitContainer: 130,
  containerUsage: 131,
} as const;
/**
 * An agent's abilities beyond the version it agreed on; an agent of an earlier podnet names none.
 * `awake`: it is the guest's first process and obeys AWAKE, so that the guest can be cloned.
 * `loopback`: it takes addresses for `lo`. `attributes`: it understands the attributes that
 * `withoutAttributes` leaves out. `parking`: it gives a NIC another MAC, and lays its link down, so
 * that a template can have a NIC. `files`: it obeys PLACEFILE. `main`: it runs the pod's main
 * process, and keeps the end of its output. `containers`: it runs containers alongside it.
 * `preload`: it reads what a program's start will read.
 * `shares`: it obeys MOUNTSHARE.
 * `writable-shares`: it mounts shares that it may write to.
 * `steps`: it obeys STEPS.
 * `twins`: it takes the names of a clone in STEPS, and a NIC that it has parked speaks no IPv6.
 * `container-limits`: it limits each of them, and says what they use.
 * `container-processes`: they may share processes and have filters, and the agent's program
 * connects to ports of the guest's loopback and changes settings of its kernel.
 */
export const agentFeatures = {
  awake: "awake",
  loopback: "loopback",
  attributes: "attributes",
  parking: "parking",
  files: "files",
  main: "main",
  shares: "shares",
  writableShares: "writable-shares",
  containers: "containers",
  preload: "preload",
  steps: "steps",
  twins: "twins",
  containerLimits: "container-limits",
  containerProcesses: "container-processes",
} as const;
/**
 * Version of the extension spoken here; a hello offers a list, the agent picks the highest it
 * knows.
 */
export const extensionVersion = 1;

export interface HelloRequest {
  readonly versions: readonly number[];
  /**
   * Echoed in the reply: distinguishes it from a reply left over by an earlier agent or daemon. One
   * word.
   */
  readonly nonce: string;
}
export interface HelloReply {
  readonly version: number;
  /** Version of the agent program. */
  readonly agent: string;
  /** Random per agent start, so that the host sees a restart. */
  readonly epoch: string;
  /** The request's. */
  readonly nonce: string;
  /** See `agentFeatures`. */
  readonly features?: readonly string[];
}

/**
 * The first frame to a guest that was cloned from a memory image, sent before its processor runs:
 * the values that its twins must not share. The ACK is empty; HELLO reports the new epoch.
 */
export interface Awakening {
  /**
   * Hexadecimal bytes stirred into the kernel's random pool, followed by a reseed: before anything
   * else.
   */
  readonly entropy: string;
  /** Wall time to set, milliseconds since 1970: the image's clock is that of its creation. */
  readonly clockMs: number;
}

export interface GuestInterface {
  /** The interface is found by this address, and waited for when it is not there yet. */
  readonly mac: Mac;
  /**
   * The MAC with which the NIC was plugged into the guest's template. When no interface has `mac`
   * yet, the one with this address gets it. Needs the feature `parking`.
   */
  readonly pluggedAs?: Mac;
  /**
   * The interface is down afterwards, without addresses: nothing leaves by it. Needs the feature
   * `parking`.
   */
  readonly parked?: true;
  /** Name it gets in the guest. */
  readonly name: string;
  /** Undefined leaves the device's own. */
  readonly mtu?: number;
  /** MACs of neighbours are not asked for. Absent leaves the setting unchanged. */
  readonly noArp?: true;
  /** Exactly these global addresses are on it afterwards, v4 and v6. */
  readonly addresses: readonly IpPrefix[];
}

export interface GuestRoute {
  readonly destination: Cidr;
  readonly gateway?: Ip;
  /** Guest name of the interface. */
  readonly interface: string;
  readonly metric?: number;
  /** Absent leaves these to the kernel. */
  readonly source?: Ip;
  readonly mtu?: number;
  /** The MSS that TCP advertises, in bytes. */
  readonly advmss?: number;
}

export interface GuestNeighbour {
  readonly interface: string;
  readonly address: Ip;
  readonly mac: Mac;
}

export interface GuestDns {
  readonly servers: readonly Ip[];
  readonly search: readonly string[];
  readonly options: readonly string[];
}

/** The `configure` frame: the whole network of a guest at once. */
export interface GuestConfig {
  /** Echoed in the reply; a repeated request is applied again, idempotently. */
  readonly requestId: string;
  readonly hostname?: string;
  readonly dns?: GuestDns;
  readonly interfaces: readonly GuestInterface[];
  /**
   * Exactly these addresses are on `lo` afterwards, alongside those of the machine itself; absent
   * leaves it alone. An agent without the feature `loopback` knows no such key.
   */
  readonly loopback?: readonly IpPrefix[];
  readonly routes: readonly GuestRoute[];
  readonly neighbours: readonly GuestNeighbour[];
  /** How long to wait for an interface's MAC to appear, milliseconds. */
  readonly waitMs: number;
  /** Wall time to set, milliseconds since 1970. */
  readonly clockMs?: number;
  /** Hexadecimal bytes stirred into the kernel's random pool, followed by a reseed. */
  readonly entropy?: string;
}

/** The guest's state after applying a `GuestConfig`: read back from its kernel, not echoed. */
export interface ObservedGuest {
  readonly requestId: string;
  readonly hostname: string;
  readonly dns: GuestDns;
  /**
   * Why resolv.conf is as the image has it: `EROFS` where nothing can be written. Absent when it is
   * as it was to be.
   */
  readonly resolverKept?: string;
  readonly interfaces: readonly ObservedInterface[];
  /** Absent unless the configuration names some. */
  readonly loopback?: readonly IpPrefix[];
  readonly routes: readonly GuestRoute[];
  readonly clockMs: number;
  /** Resident memory of the agent. */
  readonly agentRssKib: number;
}

export interface ObservedInterface {
  readonly name: string;
  readonly mac: Mac;
  readonly index: number;
  readonly mtu: number;
  readonly up: boolean;
  /**
   * Reported where the configuration has any such attribute, as are the attributes of routes: an
   * earlier host does not know them.
   */
  readonly noArp?: true;
  readonly addresses: readonly IpPrefix[];
}
