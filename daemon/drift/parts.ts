import { assertNever } from "../../core/brand.ts";
import type { IfName, PodId, PodName } from "../../core/names.ts";
import type { LookOptions } from "../../network/containers/attachments.ts";
import type {
  AttachedFragment,
  Fragment,
  NetworkFragment,
  PodFragment,
} from "../../network/model/desired.ts";
import type { HostNetwork } from "../../network/bridge/host-network.ts";
import type { Inspection } from "../../network/bridge/inspect.ts";
import type { JoinDesired } from "../../network/tc-redirect/redirect.ts";
import type { AttachmentId } from "../store/holder.ts";

/**
 * A part that is looked at and repaired by itself: a network, one port of a running pod, or a
 * container's, or a pod's place elsewhere; and the rules of all services.
 */
export type Part = NetworkPart | PortPart | AttachmentPart | JoinPart | ServicesPart;

/** One that is looked at by who has the kernel follow it (`overlay/kernel-follower.ts`). */
export interface OverlayPart {
  readonly kind: "overlay";
  readonly key: string;
  readonly name: string;
}

export interface NetworkPart {
  readonly kind: "network";
  /** Identifies the part. */
  readonly key: string;
  readonly fragment: NetworkFragment;
}

export interface RunningPort {
  readonly podId: PodId;
  readonly podName: PodName;
  readonly tap: IfName;
  /** The link that limits what its guest sends, where there may be one. */
  readonly ifb?: IfName;
  /** Its pod's rules are looked at with it: with one port of the pod's. */
  readonly hasRules?: boolean;
}

export interface PortPart extends RunningPort {
  readonly kind: "port";
  readonly key: string;
}

/** A running pod's place in a namespace of CNI plugins. */
export interface RunningJoin {
  readonly podId: PodId;
  readonly podName: PodName;
  /** Its machine's link there. */
  readonly tap: IfName;
  readonly netns: string;
}

export interface JoinPart extends RunningJoin {
  readonly kind: "join";
  readonly key: string;
  readonly hasRules?: never;
}

/** The rules of all services, which are one table of the host's. */
export interface ServicesPart {
  readonly kind: "services";
  readonly key: "services";
}

/** The services, as far as drift is concerned. */
export interface LiveServices {
  /** Their desired state. */
  desired(): readonly unknown[];
  /** Looks at their rules, and repairs them if asked to. */
  inspect(heal: LookOptions["heal"], signal: AbortSignal): Promise<Inspection>;
  /** Their planned rules, a line each. */
  describe(): readonly string[];
}

/** The running pods, as far as drift is concerned. */
export interface RunningPorts {
  /** The ports that running pods are to have now. */
  runningPorts(): readonly RunningPort[];
  /** One of them; undefined when its pod does not run any more, or has let go of it. */
  portNow(port: RunningPort): PodFragment | undefined;
  /** The rules of its pod, with all ports that it has; undefined where it has none any more. */
  rulesNow(port: RunningPort): PodFragment | undefined;
  /** The places that running pods have in namespaces of CNI plugins. */
  runningJoins(): readonly RunningJoin[];
  /** One of them; undefined as a port would be. */
  joinNow(join: RunningJoin): JoinDesired | undefined;
  /** Inspects one, and repairs it if asked to; finds nothing if it no longer exists. */
  inspectJoin(join: RunningJoin, options: LookOptions, signal: AbortSignal): Promise<Inspection>;
}

/** A container's port, with the rules of what it has published. */
export interface RunningAttachment {
  readonly id: AttachmentId;
  readonly containerId: string;
  readonly tap: IfName;
  /** As of a port. */
  readonly ifb?: IfName;
  readonly hasRules: boolean;
}

export interface AttachmentPart extends RunningAttachment {
  readonly kind: "attachment";
  readonly key: string;
}

/** The attached containers, as far as drift is concerned. */
export interface RunningAttachments {
  running(): readonly RunningAttachment[];
  /**
   * The current desired state of one, in addition to its link; undefined when it is being removed.
   */
  fragmentNow(id: AttachmentId): AttachedFragment | undefined;
  /**
   * Looks at one, links included, and heals it if asked to; nothing is found of one that is on its
   * way out.
   */
  inspect(id: AttachmentId, options: LookOptions, signal: AbortSignal): Promise<Inspection>;
}

/** The networks, as far as drift is concerned: they come and go. */
export interface LiveNetworks {
  /** Their current desired state. */
  fragments(): readonly NetworkFragment[];
  /**
   * The desired state of a network that is not being changed; undefined when it is deleted, or is
   * being replaced.
   */
  stableFragment(name: string): NetworkFragment | undefined;
  /** Lets pods ask for names again, where they cannot. */
  answerNames(): Promise<void>;
}

/** Everything that parts are of. */
export interface LiveParts {
  readonly pods: RunningPorts;
  readonly networks: LiveNetworks;
  readonly attachments: { readonly ready: RunningAttachments };
  readonly services: LiveServices;
}

/** Everything that parts are of, and the host on which they are inspected. */
export interface VisibleParts extends LiveParts {
  readonly network: Pick<HostNetwork, "inspect">;
}

export const networkParts = (networks: LiveNetworks): NetworkPart[] =>
  networks
    .fragments()
    .map((fragment) => ({ kind: "network", key: `network ${fragment.key}`, fragment }));

export const portParts = (pods: RunningPorts): PortPart[] =>
  pods.runningPorts().map((port) => ({ ...port, kind: "port", key: `port ${port.tap}` }));

export const attachmentParts = (attachments: LiveParts["attachments"]): AttachmentPart[] =>
  attachments.ready
    .running()
    .map((each) => ({ ...each, kind: "attachment", key: `container port ${each.tap}` }));

export const joinParts = (pods: RunningPorts): JoinPart[] =>
  pods.runningJoins().map((join) => ({ ...join, kind: "join", key: `joined port ${join.tap}` }));

/** None while there is no service. */
export const servicesParts = (services: LiveServices): ServicesPart[] =>
  services.desired().length === 0 ? [] : [{ kind: "services", key: "services" }];

/**
 * Whether the host's kernel reports no changes of the part, so that parts of its kind are inspected
 * in turn.
 */
export const isInside = ({ kind }: Part): boolean => kind === "attachment" || kind === "join";

/** Looks at a part, and heals it if asked to; `inside` is about containers alone. */
export const inspectPart = (
  part: Part,
  live: VisibleParts,
  options: LookOptions,
  signal: AbortSignal,
): Promise<Inspection> => {
  if (part.kind === "attachment") return live.attachments.ready.inspect(part.id, options, signal);
  if (part.kind === "join") return live.pods.inspectJoin(part, options, signal);
  if (part.kind === "services") return live.services.inspect(options.heal, signal);
  return live.network.inspect(() => partNow(part, live), options, signal);
};

/**
 * The part's desired state at the time of its inspection. Read in the network's own queue: a pod
 * that is being torn down by then no longer has ports, and a network that is being deleted, or
 * replaced, does not exist, whatever it had when the look was requested. So podnet's own changes
 * are not drift.
 */
export const partNow = (
  part: Exclude<Part, JoinPart | ServicesPart>,
  { pods, networks, attachments }: LiveParts,
): Fragment | undefined => {
  switch (part.kind) {
    case "network":
      return networks.stableFragment(part.fragment.key);
    case "port":
      return pods.portNow(part);
    case "attachment":
      return attachments.ready.fragmentNow(part.id);
    default:
      return assertNever(part);
  }
};
