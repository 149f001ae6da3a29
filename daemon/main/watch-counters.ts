import { systemClock } from "../../core/clock.ts";
import type { PodId } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import { containerText } from "../containers/attachment-plan.ts";
import { isDamagedAttachment } from "../containers/attachment-rows.ts";
import { hostLinkOf } from "../containers/link-names.ts";
import { getAttachment } from "../containers/store.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import { getPod } from "../pods/store/pods.ts";
import type { Database } from "../store/database.ts";
import { type DenialOwner, watchDenials } from "../policies/denial-watch.ts";
import { type PortOwner, watchDrops } from "../traffic/drop-watch.ts";
import type { AttachmentId } from "../store/holder.ts";
import type { Node } from "./node.ts";

/** Reports what is dropped, refused and denied of the pods and containers of a node. */
export function watchCounters(
  node: Node,
  db: Database,
  log: Log,
  everyMs: number,
): AsyncDisposable {
  const opened = new AsyncDisposableStack();
  const { journal, denials } = node;
  const common = { db, journal, clock: systemClock, log, everyMs };
  const { observe } = node.network;
  opened.use(watchDrops({ ...common, observe, ownersOf: (links) => ownersOf(links, node) }));
  opened.use(watchDenials({ ...common, denials, ownerOf: (holder) => ownerOf(holder, db) }));
  return opened;
}

function ownerOf(holder: string, db: Database): DenialOwner | undefined {
  const pod = getPod(db, holder as PodId);
  if (pod !== undefined) return { pod: { id: pod.id, name: pod.name } };
  const row = getAttachment(db, holder as AttachmentId);
  return row === undefined || isDamagedAttachment(row)
    ? undefined
    : { container: containerText(row.plan) };
}

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
