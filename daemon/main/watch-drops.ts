import { systemClock } from "../../core/clock.ts";
import type { Log } from "../../linux/log.ts";
import { containerText } from "../containers/attachment-plan.ts";
import { isDamagedAttachment } from "../containers/attachment-rows.ts";
import { hostLinkOf } from "../containers/link-names.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import type { Database } from "../store/database.ts";
import { DropWatch, type PortOwner } from "../traffic/drop-watch.ts";
import type { Node } from "./node.ts";

/** Reports what is dropped and refused of the pods and containers of a node. */
export const watchDrops = (node: Node, db: Database, log: Log, everyMs: number): DropWatch =>
  new DropWatch({
    db,
    journal: node.journal,
    observe: node.network.observe,
    ownersOf: (links) => ownersOf(links, node),
    clock: systemClock,
    log,
    everyMs,
  });

/** Who sends by these links. Containers are only looked for where a link is no pod's. */
function ownersOf(
  links: ReadonlySet<string>,
  { pods, attachments }: Pick<Node, "pods" | "attachments">,
): ReadonlyMap<string, PortOwner> {
  const owners = new Map<string, PortOwner>();
  if (links.size === 0) return owners;
  for (const { plan } of pods.held())
    for (const { guestName, nic } of withNic(staying(plan.interfaces)))
      if (links.has(nic.tap))
        owners.set(nic.tap, { interface: guestName, pod: { id: plan.podId, name: plan.name } });
  if (owners.size === links.size) return owners;
  for (const row of attachments.listAny()) {
    if (isDamagedAttachment(row) || !links.has(hostLinkOf(row.plan))) continue;
    const { plan } = row;
    owners.set(hostLinkOf(plan), { interface: plan.ifName, container: containerText(plan) });
  }
  return owners;
}
