import type { Ip } from "../../core/address.ts";
import { guarded } from "../../core/guard.ts";
import { type OwnerId, ownerOf } from "../../overlay/owner.ts";
import type { Leases } from "../../overlay/registry.ts";

export interface DepartedHostsParts {
  readonly leases: Pick<Leases, "at">;
  /** This host's addresses: only hosts whose leases name one of them are judged. */
  readonly addresses: () => readonly Ip[];
  /** Called with the hosts that are gone, when they are others than before. */
  readonly onDeparted: (owners: ReadonlySet<OwnerId>) => void;
  /** The time between two looks, in milliseconds. Default: five seconds. */
  readonly everyMs?: number;
}

/**
 * Which hosts are gone of those whose leases name this host's address: a host has a record in etcd,
 * apart from its lease of a day, that ends five minutes after the host was last heard. A host
 * without a record at two looks in a row is gone: one that comes up writes its record a moment
 * after its lease.
 */
export class DepartedHosts implements Disposable {
  readonly #parts: DepartedHostsParts;
  readonly #timer: NodeJS.Timeout;
  /** Undefined while it is not known who has a record. */
  #present: ReadonlySet<OwnerId> | undefined;
  #missing: ReadonlySet<OwnerId> = new Set();
  #departed: ReadonlySet<OwnerId> = new Set();

  constructor(parts: DepartedHostsParts) {
    this.#parts = parts;
    this.#timer = setInterval(
      guarded("overlay", () => this.#look()),
      parts.everyMs ?? 5000,
    ).unref();
  }

  /** Sets the hosts that have a record; undefined: that is not known, so that no host is gone. */
  present(owners: ReadonlySet<OwnerId> | undefined): void {
    this.#present = owners;
    const still = (owner: OwnerId): boolean => owners !== undefined && !owners.has(owner);
    this.#missing = new Set([...this.#missing].filter(still));
    this.#become(new Set([...this.#departed].filter(still)));
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const { leases, addresses } = this.#parts;
    const present = this.#present;
    if (present === undefined) return;
    const owners = addresses()
      .flatMap((ip) => leases.at(ip))
      .map(({ grant }) => ownerOf(grant))
      .filter((owner) => owner !== undefined && !present.has(owner)) as OwnerId[];
    const before = this.#missing;
    this.#missing = new Set(owners);
    this.#become(new Set(owners.filter((owner) => before.has(owner))));
  }

  #become(departed: ReadonlySet<OwnerId>): void {
    const before = this.#departed;
    this.#departed = departed;
    if (departed.size !== before.size || [...departed].some((owner) => !before.has(owner)))
      this.#parts.onDeparted(departed);
  }
}
