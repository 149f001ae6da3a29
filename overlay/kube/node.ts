import { type Cidr, familyOf, networkOf, parseIpPrefix } from "../../core/address.ts";
import type { KubeObject } from "../../kubernetes/objects.ts";
import { readable } from "../flannel/config.ts";
import type { Subnets } from "../flannel/key.ts";
import { isTooLong, nodeAnnotations, type NodeAnnotations } from "./annotations.ts";

/** A Node of Kubernetes, as far as an overlay is concerned. */
export interface OverlayNode {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** When the API server made it, milliseconds since 1970; Infinity if it does not say. */
  readonly createdAt: number;
  /** What the Node's pods have, of each family that Kubernetes has given it. */
  readonly podCidrs: Subnets | undefined;
  readonly annotations: NodeAnnotations;
  /** One of flannel's annotations has more characters than any that flannel writes. */
  readonly tooLong: boolean;
  /** The condition NetworkUnavailable: `True`, `False`, `Unknown`, or undefined. */
  readonly networkUnavailable: string | undefined;
  /** The condition says that podnet has written it. */
  readonly isConditionOwn: boolean;
}

/** The reason of the condition that says that it is podnet's. */
export const upReason = "PodnetIsUp";

/** Kubernetes gives a Node one podCIDR of each family. */
const mostPodCidrs = 2;

/**
 * Reads a Node. `prefix` is that of flannel's annotations. Never throws: what it cannot read is
 * absent.
 */
export function readNode(
  { name, uid, resourceVersion, json }: KubeObject,
  prefix: string,
): OverlayNode {
  const { metadata, spec, status } = json as NodeJson;
  const annotations = nodeAnnotations(metadata?.annotations, prefix);
  const condition = conditionOf(status?.conditions);
  const created = Date.parse(String(metadata?.creationTimestamp));
  return {
    name,
    uid,
    resourceVersion,
    createdAt: Number.isNaN(created) ? Infinity : created,
    podCidrs: podCidrsOf(spec),
    annotations,
    tooLong: isTooLong(annotations),
    networkUnavailable: condition?.status,
    isConditionOwn: condition?.reason === upReason,
  };
}

/** The fields that are read, none of which needs to be there or of this type. */
interface NodeJson {
  readonly metadata?: { readonly annotations?: unknown; readonly creationTimestamp?: unknown };
  readonly spec?: { readonly podCIDR?: unknown; readonly podCIDRs?: unknown };
  readonly status?: { readonly conditions?: unknown };
}

/** Undefined where one cannot be read, or a family has two. */
function podCidrsOf(spec: NodeJson["spec"]): Subnets | undefined {
  const listed: unknown = spec?.podCIDRs;
  const texts = Array.isArray(listed) && listed.length > 0 ? listed : [spec?.podCIDR];
  if (texts.length > mostPodCidrs) return undefined;
  const cidrs = texts.map(cidrOf);
  const [v4, more4] = cidrs.filter((cidr) => cidr !== undefined && familyOf(cidr) === 4);
  const [v6, more6] = cidrs.filter((cidr) => cidr !== undefined && familyOf(cidr) === 6);
  if (cidrs.includes(undefined) || more4 !== undefined || more6 !== undefined) return undefined;
  if (v4 !== undefined) return { v4, v6 };
  return v6 && { v4: undefined, v6 };
}

/** An API server takes addresses with bits behind the prefix, too. */
const cidrOf = (text: unknown): Cidr | undefined =>
  typeof text === "string" && text.length <= 64
    ? readable(() => networkOf(parseIpPrefix(text)))
    : undefined;

interface Condition {
  readonly status: string;
  readonly reason: unknown;
}

function conditionOf(conditions: unknown): Condition | undefined {
  if (!Array.isArray(conditions)) return undefined;
  type Found = { readonly type?: unknown; readonly status?: unknown; readonly reason?: unknown };
  for (const condition of conditions as readonly (Found | null)[])
    if (condition?.type === "NetworkUnavailable" && typeof condition.status === "string")
      return { status: condition.status, reason: condition.reason };
  return undefined;
}
