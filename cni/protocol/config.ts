import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { Capabilities } from "./capabilities.ts";
import type { CniDns, CniResult } from "./result.ts";
import type { CniVersion } from "./version.ts";

/** One attachment, as a runtime names it. */
export interface AttachmentName {
  readonly containerId: string;
  readonly ifName: string;
}

/** The content of a plugin's standard input. */
export interface CniConfig {
  readonly version: CniVersion;
  /**
   * The network's name in the runtime's eyes: any name CNI allows, not one of podnet's networks.
   */
  readonly name: string;
  readonly type: string;
  readonly prevResult?: CniResult;
  readonly capabilities: Capabilities;
  /** From `args.cni`, which capabilities of the same meaning override. */
  readonly args: {
    readonly ips: readonly (Ip | IpPrefix)[];
    readonly mac?: Mac;
    /** `labels` of CNI's conventions. */
    readonly labels: ReadonlyMap<string, string>;
  };
  readonly dns?: CniDns;
  /** GC: what is still in use. */
  readonly validAttachments?: readonly AttachmentName[];
  // Podnet's own keys.
  /** podnet's network; absent: the configured default. */
  readonly network?: string;
  /** Bytes; absent: the network's. */
  readonly mtu?: number;
  /** Routed by our gateway where a `macvlan0` leads elsewhere. */
  readonly serviceCidrs: readonly Cidr[];
  /**
   * The runtime listens at published host ports itself, to keep them from others, as podman does:
   * podnetd leaves that to it.
   */
  readonly portsHeldByRuntime: boolean;
}
