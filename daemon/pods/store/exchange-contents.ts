import type { Database } from "../../store/database.ts";
import { deleteInterfaces, insertInterface } from "./interfaces.ts";
import { deletePorts, insertPorts } from "../../published/store.ts";
import { setPodContents } from "./pods.ts";
import { type PodContents, type PodRow } from "./pod-row.ts";
import type { Addresses } from "../../ipam/addresses.ts";
import { type PodPlan, staying } from "./pod-plan.ts";

/** Writes a plan's interfaces and ports, whose taps, MACs and host ports no other pod may have. */
export function insertContents(db: Database, plan: PodPlan): void {
  const { podId, interfaces } = plan;
  for (const { position, network, guestName, nic, cni } of interfaces) {
    // (The plugins choose the MAC of their link, and may give it again in another namespace.)
    const mac = cni === undefined ? nic?.mac : undefined;
    insertInterface(db, { podId, position, network, guestName, tap: nic?.tap, mac });
  }
  insertPorts(db, { kind: "pod", id: podId }, plan.published);
}

/**
 * Replaces a pod's contents in its row, and the contents that it may go back to; the addresses of
 * both are held. Call inside a transaction, and call the returned function once it is committed.
 */
export function exchangeContents(
  { db, addresses }: { readonly db: Database; readonly addresses: Addresses },
  row: PodRow,
  next: PodContents,
  back: PodContents | undefined,
): () => void {
  const plans = (now: PodContents, before: PodContents | undefined): PodPlan[] =>
    before === undefined ? [now.plan] : [now.plan, before.plan];
  const [held, toHold] = [plans(row, row.before), plans(next, back)];
  setPodContents(
    db,
    row.id,
    { spec: next.spec, plan: next.plan },
    back === undefined ? undefined : { spec: back.spec, plan: back.plan },
  );
  deleteInterfaces(db, row.id);
  deletePorts(db, row.id);
  insertContents(db, next.plan);
  addresses.exchange(held, toHold);
  return () => addresses.exchanged(held, toHold);
}

/**
 * The contents of a pod without a machine: changes that were under way are over, and `leaving` NICs
 * are gone. Undefined when nothing changes.
 */
export function withoutMachine(row: PodRow): PodContents | undefined {
  const { spec, plan } = row.before ?? row;
  const interfaces = staying(plan.interfaces);
  if (row.before === undefined && interfaces.length === plan.interfaces.length) return undefined;
  const asked = spec.interfaces.filter((_, i) => plan.interfaces[i]?.leaving !== true);
  return { spec: { ...spec, interfaces: asked }, plan: { ...plan, interfaces } };
}
