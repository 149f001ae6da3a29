import type { OverlayConfig } from "../flannel/config.ts";
import type { Since, Trouble } from "../lease-state.ts";
import { unreadAddress } from "./annotations.ts";
import type { OverlayNode } from "./node.ts";
import { outside, subnetsIn } from "./node-leases.ts";
import type { Wanted } from "./node-writer.ts";

/** Refused Nodes that are named. */
const few = 5;

interface Known {
  /** The name of this host's Node. */
  readonly node: string;
  readonly own: OverlayNode | undefined;
  readonly config: OverlayConfig | undefined;
  readonly listed: boolean;
  readonly refused: ReadonlyMap<string, string>;
  readonly wanted: Wanted | undefined;
  /** Why the last write failed. */
  readonly failure: unknown;
  readonly ofConfig: Trouble | undefined;
}

/** The reasons why this host's part is not as planned. Pure. */
export function nodeTroubles(known: Known): Trouble[] {
  const { node, own, config, listed, refused, wanted, failure, ofConfig } = known;
  const troubles: Trouble[] = ofConfig === undefined ? [] : [ofConfig];
  if (listed && own === undefined) troubles.push({ kind: "node-missing", node });
  if (own !== undefined && config !== undefined) {
    const subnets = subnetsIn(own, config);
    const reason = subnets && outside(subnets, config);
    if (subnets === undefined) troubles.push({ kind: "no-pod-cidr", node });
    if (reason !== undefined) troubles.push({ kind: "no-pod-cidr", node, reason });
    const unread = unreadAddress(own.annotations, config);
    if (unread !== undefined) troubles.push({ kind: "unread-address", node, ...unread });
  }
  if (wanted?.kind === "address") troubles.push({ kind: "no-address", family: wanted.family });
  if (refused.size > 0)
    troubles.push({ kind: "nodes-refused", count: refused.size, some: [...refused].slice(0, few) });
  if (failure !== undefined) troubles.push({ kind: "failing", error: failure });
  return troubles;
}

/** Remembers since when there has been trouble of a kind. */
export class Troubles {
  #since: ReadonlyMap<Trouble["kind"], number> = new Map();

  /** The troubles that there are, each since it was first seen. */
  now(troubles: readonly Trouble[], at: number): Since<Trouble>[] {
    const before = this.#since;
    const dated = troubles.map((trouble) => ({
      ...trouble,
      since: before.get(trouble.kind) ?? at,
    }));
    this.#since = new Map(dated.map(({ kind, since }) => [kind, since]));
    return dated;
  }
}
