import type { Cidr, Ip, IpPrefix, Mac } from "../../core/address.ts";
import type { IfName, NetworkName } from "../../core/names.ts";
import type { LaterChanges } from "../../network/containers/desired.ts";
import type { PortRates } from "../../network/model/rates.ts";
import { laterText } from "../../network/containers/later.ts";
import type { LoopbackRedirect } from "../../network/model/desired.ts";
import type { BootMoment } from "../../linux/processes/boot-moment.ts";
import type { PublishedPlan } from "../published/published-plan.ts";
import type { AttachmentId } from "../store/holder.ts";

/** Version of the stored form. A reader refuses what it does not know. */
export const attachmentPlanVersion = 2;

/**
 * The decisions about a container's attachment before anything happens. Its part of the host is
 * derived (`attachmentFragment`), with its network as it is now. Plain JSON, stored with its row;
 * undo works from it alone.
 */
export interface AttachmentPlan {
  readonly version: typeof attachmentPlanVersion;
  readonly id: AttachmentId;
  readonly containerId: string;
  readonly ifName: string;
  /** The name of the runtime's network configuration. */
  readonly config: string;
  readonly network: NetworkName;
  /** A path that leads to the namespace. */
  readonly netns: string;
  /**
   * The namespace's identity, once it is known: another one by the same path is not its own. Absent
   * with `hostVeth`.
   */
  readonly namespace?: string;
  /** The host's end of a pair that the caller made (OpenShift SDN); absent: podnet makes a pair. */
  readonly hostVeth?: IfName;
  readonly bridge: IfName;
  readonly mac: Mac;
  /** The MTU in ADD's result. */
  readonly mtu: number;
  /** The runtime asked for no MTU, so the MTU follows the network's. Absent: the MTU stays. */
  readonly mtuOfNetwork?: true;
  readonly addresses: readonly IpPrefix[];
  /** At most one of each family that the container has addresses of. */
  readonly gateways: readonly Ip[];
  readonly bandwidth?: PortRates;
  /** Routed by the gateway for a macvlan link of OpenShift SDN's, too. */
  readonly serviceCidr?: Cidr;
  readonly published?: readonly PublishedPlan[];
  /**
   * The runtime holds the host ports that are published; absent: podnetd holds them with sockets.
   */
  readonly portsHeldByRuntime?: true;
  /**
   * podnetd's own loopback ports that the runtime's are redirected to (`loopback`); absent where
   * there are none.
   */
  readonly forwarders?: readonly PublishedPlan[];
  readonly loopback?: readonly LoopbackRedirect[];
  readonly dns: AttachmentDns;
  /**
   * When the plan was claimed, unaffected by changes of the clock; absent in plans of earlier
   * podnetds.
   */
  readonly claimed?: BootMoment;
  /** The DNS names that the runtime gives the container on this network; absent: none. */
  readonly names?: readonly string[];
  /** The container's pod, if the runtime names it: `namespace/name`. */
  readonly pod?: string;
  /** Labels that the runtime gives it, by which policies choose; absent: none. */
  readonly labels?: Readonly<Record<string, string>>;
  /** ADD was answered a moment ago: plugins after podnet's in the list may be yet to run. */
  readonly awaitsPlugins?: true;
  /** The changes that later plugins made inside. */
  readonly later?: LaterChanges;
}

/** Which one it is, for people. */
export const containerText = ({
  containerId,
  ifName,
  network,
  pod,
}: Pick<AttachmentPlan, "containerId" | "ifName" | "network" | "pod">): string =>
  `container ${containerId}${pod === undefined ? "" : ` of ${pod}`}, ${ifName} on ${network}`;

/**
 * The host ports that podnetd is to listen at: where the runtime holds those that are published,
 * its own that they lead to.
 */
export const portsToHold = ({
  published,
  portsHeldByRuntime,
  forwarders,
}: Pick<
  AttachmentPlan,
  "published" | "portsHeldByRuntime" | "forwarders"
>): AttachmentPlan["published"] => (portsHeldByRuntime === true ? forwarders : published);

/** A plan with its namespace's identity: another one by the same path is not its own. */
export const inNamespace = (plan: AttachmentPlan, namespace: string | undefined): AttachmentPlan =>
  namespace === undefined ? plan : { ...plan, namespace };

/**
 * The plan of a container whose ADD is answered now: plugins after podnet's in the list are yet to
 * run.
 */
export const awaitingPlugins = (plan: AttachmentPlan): AttachmentPlan =>
  plan.hostVeth === undefined ? { ...plan, awaitsPlugins: true } : plan;

/**
 * The plan of a container whose list is done. Without `later`, later plugins changed nothing
 * inside.
 */
export function afterPlugins(plan: AttachmentPlan, later?: LaterChanges): AttachmentPlan {
  const { awaitsPlugins: _done, ...complete } = plan;
  const isAny = later !== undefined && laterText(later) !== undefined;
  return isAny ? { ...complete, later } : complete;
}

/** The container's name servers, as the runtime gets them in ADD's result. */
export interface AttachmentDns {
  readonly nameservers: readonly string[];
  readonly domain?: string;
  readonly search: readonly string[];
  readonly options: readonly string[];
}
