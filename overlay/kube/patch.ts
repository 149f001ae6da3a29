import type { WrittenName } from "./annotations.ts";
import { type OverlayNode, upReason } from "./node.ts";

/** The Node's condition that the scheduler looks at: `True` keeps pods away. */
export interface NetworkCondition {
  readonly unavailable: boolean;
  /** Wall clock, milliseconds. */
  readonly at: number;
}

/**
 * A strategic merge patch of a Node's status. It names the Node's version and identity, so that it
 * is refused if the Node is not as it was when this was decided.
 */
export const nodePatch = (
  { resourceVersion, uid }: Pick<OverlayNode, "resourceVersion" | "uid">,
  prefix: string,
  annotations: Readonly<Partial<Record<WrittenName, string | null>>>,
  condition: NetworkCondition | undefined,
): object => ({
  metadata: {
    resourceVersion,
    uid,
    annotations: Object.fromEntries(
      Object.entries(annotations).map(([name, value]) => [`${prefix}/${name}`, value]),
    ),
  },
  ...(condition === undefined ? {} : { status: { conditions: [conditionJson(condition)] } }),
});

function conditionJson({ unavailable, at }: NetworkCondition): object {
  // Kubernetes' times have whole seconds.
  const time = `${new Date(at).toISOString().slice(0, 19)}Z`;
  return {
    type: "NetworkUnavailable",
    status: unavailable ? "True" : "False",
    reason: unavailable ? "PodnetLeft" : upReason,
    message: unavailable
      ? "podnet has left the overlay on this node"
      : "podnet is running on this node",
    lastTransitionTime: time,
    lastHeartbeatTime: time,
  };
}
