import type { NetworkName } from "../../core/names.ts";
import { listAttachments } from "../containers/store.ts";
import type { Database } from "../store/database.ts";
import { listPods } from "../pods/store/pods.ts";

/** Somebody on a network, and the MTU of what it has there. */
export interface ToldMtu {
  /** `pod web`, or `container` and its id. */
  readonly user: string;
  readonly mtu: number;
}

/**
 * What pods and containers on a network were told: it stays theirs, whatever those are told that come after them. Containers that named
 * none of their own are not among them: theirs follows the network.
 */
export const toldMtus = (db: Database, name: NetworkName): ToldMtu[] => [
  ...listPods(db).flatMap(({ plan }) =>
    plan.interfaces
      .filter(({ network }) => network === name)
      .map(({ mtu }) => ({ user: `pod ${plan.name}`, mtu })),
  ),
  ...listAttachments(db)
    .filter(({ network, plan }) => network === name && plan.mtuOfNetwork !== true)
    .map(({ containerId, plan: { mtu } }) => ({ user: `container ${containerId}`, mtu })),
];

/** What a network's bridge is to carry so that those who were told more lose nothing among themselves; nothing where nobody was. */
export function carriedFor(
  db: Database,
  { name, mtu }: { readonly name: NetworkName; readonly mtu: number },
): { readonly bridgeMtu?: number } {
  const most = Math.max(mtu, ...toldMtus(db, name).map((told) => told.mtu));
  return most === mtu ? {} : { bridgeMtu: most };
}
