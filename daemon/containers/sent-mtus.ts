import type { NetworkName } from "../../core/names.ts";
import type { SentMtu } from "../networks/sent-mtus.ts";
import { listPods } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import { listAttachments } from "./store.ts";

/**
 * The MTUs that pods and containers on a network have, and keep when the network's MTU changes. A
 * container that named no MTU is not in the list: its MTU follows the network's.
 */
export const sentMtus = (db: Database, name: NetworkName): SentMtu[] => [
  ...listPods(db).flatMap(({ plan }) =>
    plan.interfaces
      .filter(({ network }) => network === name)
      .map(({ mtu, guestName }): SentMtu => ({ kind: "pod", name: plan.name, guestName, mtu })),
  ),
  ...listAttachments(db)
    .filter(({ network, plan }) => network === name && plan.mtuOfNetwork !== true)
    .map(
      ({ containerId, plan: { mtu } }): SentMtu => ({ kind: "container", name: containerId, mtu }),
    ),
];
