import { type Ip, ipOf } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { AttachmentId } from "../store/holder.ts";
import type { AttachmentPlan } from "./attachment-plan.ts";

/**
 * The names that runtimes gave to containers, by network, for the resolvers: in memory, for a
 * question is not to read rows. Several containers may have one name: it has the addresses of all.
 */
export class ContainerNames {
  readonly #plans = new Map<AttachmentId, AttachmentPlan>();
  /** By network and name. */
  readonly #byName = new Map<string, Set<AttachmentPlan>>();
  /** By network and address. */
  readonly #byAddress = new Map<string, string>();

  /** The container is ready, or ready by another plan than before. */
  enter(plan: AttachmentPlan): void {
    this.leave(plan.id);
    const { names = [], network } = plan;
    const [first] = names;
    if (first === undefined) return;
    this.#plans.set(plan.id, plan);
    for (const name of names) {
      const known = this.#byName.get(key(network, name)) ?? new Set();
      this.#byName.set(key(network, name), known.add(plan));
    }
    for (const address of plan.addresses) this.#byAddress.set(key(network, ipOf(address)), first);
  }

  /** The container goes. Absent is success. */
  leave(id: AttachmentId): void {
    const plan = this.#plans.get(id);
    if (plan === undefined) return;
    this.#plans.delete(id);
    const { names = [], network } = plan;
    for (const name of names) {
      const known = this.#byName.get(key(network, name));
      known?.delete(plan);
      if (known?.size === 0) this.#byName.delete(key(network, name));
    }
    for (const address of plan.addresses) this.#byAddress.delete(key(network, ipOf(address)));
  }

  /** The addresses of all containers of that name on the network; undefined when there is none. */
  addressesOf(network: NetworkName, name: string): readonly Ip[] | undefined {
    const known = this.#byName.get(key(network, name));
    return known && [...known].flatMap(({ addresses }) => addresses.map(ipOf));
  }

  /** The first name of the container with that address. */
  nameAt(network: NetworkName, ip: Ip): string | undefined {
    return this.#byAddress.get(key(network, ip));
  }
}

const key = (network: NetworkName, what: string): string => `${network} ${what}`;
