import { systemClock } from "../../core/clock.ts";
import type { Log } from "../../linux/log.ts";
import { openNetfilterLog } from "../../linux/netfilter-log/open-log.ts";
import type { Config } from "../config/config.ts";
import { containerText } from "../containers/attachment-plan.ts";
import { isDamagedAttachment } from "../containers/attachment-rows.ts";
import { hostLinkOf } from "../containers/link-names.ts";
import { staying, withNic } from "../pods/store/pod-plan.ts";
import { AuditLog } from "../policies/audit-log.ts";
import { DenialLog } from "../policies/denial-log.ts";
import { type DenialOwner, denialOwner } from "../policies/denial-owner.ts";
import { watchDenials } from "../policies/denial-watch.ts";
import type { Denial } from "../policies/denials.ts";
import type { Database } from "../store/database.ts";
import { type PortOwner, watchDrops } from "../traffic/drop-watch.ts";
import type { Node } from "./node.ts";

/** Reports what is dropped, refused and denied of the pods and containers of a node. */
export function watchStopped(
  { network: { observe }, journal, denials, verdicts, ...node }: Node,
  db: Database,
  logOf: (component: string) => Log,
  { driftMs: everyMs, policyLog }: Pick<Config, "driftMs" | "policyLog">,
): AsyncDisposable {
  const opened = new AsyncDisposableStack();
  const ownerOf = (holder: string): DenialOwner | undefined => denialOwner(db, holder);
  const log = logOf("traffic");
  const audit =
    policyLog &&
    opened.use(new AuditLog({ ...policyLog, ownerOf, log, now: () => systemClock.now() }));
  if (audit !== undefined) opened.use(verdicts.follow((verdict) => audit.add(verdict)));
  const { decisionsOf } = denials;
  opened.use(new DenialLog({ read: openNetfilterLog, observe, decisionsOf, verdicts, log }));
  if (everyMs === 0) return opened;
  const common = { db, journal, clock: systemClock, log, everyMs };
  opened.use(watchDrops({ ...common, observe, ownersOf: (links) => ownersOf(links, node) }));
  const counted = audit && ((all: readonly Denial[]) => audit.addCounts(all));
  opened.use(watchDenials({ ...common, denials, ownerOf, audit: counted }));
  return opened;
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
