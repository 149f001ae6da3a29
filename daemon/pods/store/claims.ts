import { exchangePorts, insertPorts } from "../../published/store.ts";
import type { Addresses } from "../../ipam/addresses.ts";
import type { Database } from "../../store/database.ts";
import { deleteInterfaces, insertInterface, type InterfaceRow } from "./interfaces.ts";
import type { PodPlan } from "./pod-plan.ts";

/**
 * A pod's claims: the taps, MACs, host ports and addresses that no other pod or container may have.
 * A pod's plan decides them, and rows hold them, because unique indices refuse a second holder.
 * The rows also say what is left of a pod whose plan is unreadable (`planOfRows`).
 */
interface Claims {
  readonly db: Database;
  readonly addresses: Addresses;
}

/** Writes the claims of a new pod. Call inside a transaction. */
export function insertClaims({ db, addresses }: Claims, plan: PodPlan): void {
  insertInterfaces(db, plan);
  insertPorts(db, { kind: "pod", id: plan.podId }, plan.published);
  addresses.insert(plan);
}

/** The plan of a pod, and the plan that the pod may go back to. */
interface Plans {
  readonly now: PodPlan;
  readonly before: PodPlan | undefined;
}

/**
 * Replaces a pod's claims by those of other plans: the addresses of both plans, all else of the
 * present one. Rows that both have stay as they are: a published port writes one row, and not all
 * of the pod. Call inside a transaction, and call the returned function once it is committed.
 */
export function exchangeClaims({ db, addresses }: Claims, had: Plans, has: Plans): () => void {
  const { podId } = has.now;
  if (JSON.stringify(interfaceRows(had.now)) !== JSON.stringify(interfaceRows(has.now))) {
    deleteInterfaces(db, podId);
    insertInterfaces(db, has.now);
  }
  exchangePorts(db, podId, had.now.published, has.now.published);
  const [held, toHold] = [allOf(had), allOf(has)];
  addresses.exchange(held, toHold);
  return () => addresses.exchanged(held, toHold);
}

const allOf = ({ now, before }: Plans): PodPlan[] => (before === undefined ? [now] : [now, before]);

function insertInterfaces(db: Database, plan: PodPlan): void {
  for (const row of interfaceRows(plan)) insertInterface(db, row);
}

const interfaceRows = ({ podId, interfaces }: PodPlan): readonly InterfaceRow[] =>
  interfaces.map(({ position, network, guestName, nic, cni }) => {
    // (The plugins choose the MAC of their link, and may give it again in another namespace.)
    const mac = cni === undefined ? nic?.mac : undefined;
    return { podId, position, network, guestName, tap: nic?.tap, mac };
  });
