import { readlinkSync } from "node:fs";
import { Conntrack } from "../../linux/conntrack/conntrack.ts";
import { type Nftables, openNftables } from "../../linux/nftables/libnftables.ts";
import {
  type GenerationCounter,
  openGenerationCounter,
} from "../../linux/nftables/nftables-generation.ts";
import { bootId } from "../../linux/processes/proc.ts";
import { Rtnetlink } from "../../linux/netlink/rtnetlink-socket.ts";
import { readSysctl, writeSysctl } from "../../linux/sysctl.ts";
import { TraceStream } from "../../linux/nftrace/stream.ts";
import { installedPrograms, type IptablesPrograms } from "./iptables-programs.ts";

/** The functions of rtnetlink that the host's network needs. */
export type HostNetlink = Pick<
  Rtnetlink,
  | "links"
  | "link"
  | "linksNamed"
  | "addBridge"
  | "addIfb"
  | "changeLink"
  | "changeBridge"
  | "changeBridgePort"
  | "portVlans"
  | "setPortVlan"
  | "leaveBridge"
  | "setGroup"
  | "deleteLink"
  | "deleteGroup"
  | "addresses"
  | "addAddress"
  | "deleteAddress"
  | "routes"
  | "deleteNeighbour"
  | "answer"
  | "answers"
  | "tryBatch"
  | "close"
>;

/** Settings below /proc/sys. Both throw `SYSCALL_FAILED` with the errno's name. */
export interface HostSysctl {
  read(key: string): string;
  write(key: string, value: string): void;
}

/** The flows that the kernel tracks. */
export type HostConntrack = Pick<Conntrack, "flows" | "forget" | "close">;

/** The functions of nf_tables that our table needs. */
export interface NftablesSource {
  /** Opens it in the calling thread's namespace. Throws `FIREWALL_FAILED`, as do the calls. */
  open(): Nftables;
  /** Counts the transactions of everybody. */
  openCounter(): GenerationCounter;
}

/** All of the kernel that this room sees and changes: the simulation (test/sim) gives another. */
export interface HostKernel {
  readonly netlink: HostNetlink;
  readonly iptables: IptablesPrograms;
  readonly ip6tables: IptablesPrograms;
  readonly nftables: NftablesSource;
  readonly conntrack: HostConntrack;
  /** Listens for what the kernel says about traced packets. Throws `SYSCALL_FAILED`. */
  readonly openTrace: () => Pick<TraceStream, "next"> & Disposable;
  readonly sysctl: HostSysctl;
  /** Identifies this boot of this network namespace: records of another one are void. */
  readonly identity: string;
}

/** The kernel itself, in the calling thread's network namespace. */
export const openHostKernel = (): HostKernel => ({
  netlink: Rtnetlink.open(),
  iptables: installedPrograms(4),
  ip6tables: installedPrograms(6),
  nftables: { open: openNftables, openCounter: openGenerationCounter },
  openTrace: () => new TraceStream(),
  conntrack: new Conntrack(),
  sysctl: { read: readSysctl, write: writeSysctl },
  identity: hostIdentity(),
});

export const hostIdentity = (): string => `${bootId()} ${readlinkSync("/proc/self/ns/net")}`;
