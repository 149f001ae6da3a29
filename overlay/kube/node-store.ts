import type { KubeClient } from "../../kubernetes/client.ts";
import { type Followed, follow } from "../../kubernetes/follow.ts";
import type { KubeObject } from "../../kubernetes/objects.ts";
import type { Clock } from "../../core/clock.ts";

/** What the overlay needs of Kubernetes' Nodes. Every call ends with its signal. */
export interface NodeStore {
  /** Follows all Nodes, through anything, until `signal`. */
  follow(signal: AbortSignal): AsyncIterable<Followed>;
  /** One Node; undefined if there is none. */
  read(name: string, signal: AbortSignal): Promise<KubeObject | undefined>;
  /**
   * Changes a Node's status, and its annotations, by a strategic merge patch. Throws
   * `KUBERNETES_CONFLICT` if the Node is not at the version that the patch names.
   */
  patch(name: string, patch: object, signal: AbortSignal): Promise<KubeObject>;
}

const nodes = "/api/v1/nodes";
const nodePath = (name: string): string => `${nodes}/${encodeURIComponent(name)}`;

/** Nodes as an API server has them. */
export class KubeNodes implements NodeStore {
  readonly #client: KubeClient;
  readonly #clock: Clock;

  constructor(client: KubeClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  follow(signal: AbortSignal): AsyncIterable<Followed> {
    return follow(this.#client, nodes, { signal, what: "nodes", clock: this.#clock });
  }

  read(name: string, signal: AbortSignal): Promise<KubeObject | undefined> {
    return this.#client.get(nodePath(name), "get node", signal);
  }

  patch(name: string, patch: object, signal: AbortSignal): Promise<KubeObject> {
    return this.#client.patch(`${nodePath(name)}/status`, patch, "patch node", signal);
  }
}
