import { familyOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type { HeldPort, PortAt } from "../../daemon/published/held-port.ts";
import type { Process } from "./process.ts";

/** Host ports that one life of the daemon has bound: the kernel gives each to one socket. */
export class HostSockets {
  readonly #bound = new Set<PortAt>();

  async hold(port: PortAt, process: Process): Promise<HeldPort> {
    const name = nameOf(port);
    // (A socket that no answer names is none.)
    await process.later(`socket hold ${name}`, () => this.#refuseTaken(port));
    this.#refuseTaken(port);
    this.#bound.add(port);
    return { close: () => void this.#bound.delete(port) };
  }

  #refuseTaken(port: PortAt): void {
    const other = [...this.#bound].find((each) => overlap(each, port));
    if (other === undefined) return;
    const message = `Host port ${nameOf(port)} is held at ${nameOf(other)}`;
    throw new PodnetError("PORT_IN_USE", message, { hint: "Choose another" });
  }

  names(): string[] {
    return Array.from(this.#bound, nameOf).toSorted();
  }
}

const nameOf = ({ protocol, hostIp, hostPort }: PortAt): string =>
  `${protocol} ${hostIp} ${hostPort}`;

/** A socket at every address of a family keeps others of that family away, and they it. */
const overlap = (one: PortAt, other: PortAt): boolean =>
  one.protocol === other.protocol &&
  one.hostPort === other.hostPort &&
  familyOf(one.hostIp) === familyOf(other.hostIp) &&
  (one.hostIp === other.hostIp || isEvery(one) || isEvery(other));

const isEvery = ({ hostIp }: PortAt): boolean => hostIp === "0.0.0.0" || hostIp === "::";
