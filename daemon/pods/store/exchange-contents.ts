import type { Database } from "../../store/database.ts";
import { deleteInterfaces, insertInterface } from "./interfaces.ts";
import { deletePorts, insertPorts } from "../../published/store.ts";
import { setPodContents } from "./pods.ts";
import { type PodContents, type PodRow } from "./pod-row.ts";
import type { Addresses } from "../../ipam/addresses.ts";
import { type PodPlan, staying } from "./pod-plan.ts";

/**
 * Writes down what a plan has that others may not have at the same time, alongside its addresses.
 */
export function insertContents(db: Database, plan: PodPlan): void {
  const { podId, interfaces } = plan;
  for (const { position, network, guestName, nic, cni } of interfaces) {
    // (That of a link of CNI plugins is theirs to give: in another namespace, on another network,
    // they may give it again.)
    const mac = cni === undefined ? nic?.mac : undefined;
    insertInterface(db, { podId, position, network, guestName, tap: nic?.tap, mac });
  }
  insertPorts(db, { kind: "pod", id: podId }, plan.published);
}

/**
 * Writes what a pod consists of, and what it may go back to, in the place of what stands in its
 * row; call inside a transaction, and what is answered once it is committed. Addresses of both are
 * held.
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
 * What is left of a pod when it has no machine: changes that were under way are over, and so is the
 * leaving of NICs. Undefined when nothing was.
 */
export function withoutMachine(row: PodRow): PodContents | undefined {
  const { spec, plan } = row.before ?? row;
  const interfaces = staying(plan.interfaces);
  if (row.before === undefined && interfaces.length === plan.interfaces.length) return undefined;
  const asked = spec.interfaces.filter((_, i) => plan.interfaces[i]?.leaving !== true);
  return { spec: { ...spec, interfaces: asked }, plan: { ...plan, interfaces } };
}
