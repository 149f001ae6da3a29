import type { Cidr, Ip, IpPrefix, Mac } from "../core/address.ts";
import type { IfName, NetworkName, PodName } from "../core/names.ts";

/** A pod as asked for, every field checked: what the planner works from. Plain JSON. */
export interface PodSpec {
  /** Undefined lets the daemon choose `pod-` and the start of the id. */
  readonly name?: PodName;
  readonly labels: Readonly<Record<string, string>>;
  readonly resources: { readonly vcpu: number; readonly memoryMib: number };
  readonly boot: BootSpec;
  /** Never empty: none given means one automatic interface. */
  readonly interfaces: readonly InterfaceSpec[];
  readonly hostname?: string;
  /** Undefined inherits the host's servers, without those on loopback. */
  readonly dns?: DnsSpec;
  readonly routes: readonly RouteSpec[];
  /** Absent in specs of an earlier podnetd, and where none are published. */
  readonly ports?: readonly PortSpec[];
}

/** Ports of the pod that can be reached at the host, `count` of them one after the other. */
export interface PortSpec {
  /** Undefined: 127.0.0.1 and ::1. `*`: every address of both families; 0.0.0.0 or ::: every one of a family. */
  readonly hostIp?: Ip | "*";
  /** 0: podnet chooses. */
  readonly hostPort: number;
  readonly podPort: number;
  readonly count: number;
  readonly protocol: "tcp" | "udp" | "sctp";
}

export interface BootSpec {
  /** Undefined takes the configured default image. */
  readonly kernel?: string;
  readonly initrd?: string;
  readonly cmdline: string;
  readonly disks: readonly {
    readonly path: string;
    readonly format: "raw" | "qcow2";
    readonly readOnly: boolean;
  }[];
  /** Undefined leaves it to the node. */
  readonly factory?: "cold" | "template";
}

export interface InterfaceSpec {
  readonly network: NetworkName;
  /** Undefined takes the next free one. A bare address gets its network's length. */
  readonly address?: Ip | IpPrefix;
  readonly mac?: Mac;
  readonly mtu?: number;
  /** Asks for a default route by this gateway. */
  readonly gateway?: Ip;
  /** Undefined is `eth` and the interface's position. */
  readonly guestName?: IfName;
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
}
