import type { Ip } from "../../../core/address.ts";
import type { Owner } from "../../../ipallocator/owner.ts";
import type { AddressPool } from "../../../ipallocator/pool.ts";

/** Takes the next address as podnetd does; undefined when none is left. */
export function takeNext(pool: AddressPool, owner: Owner): Ip | undefined {
  const [found] = pool.peek(1);
  if (found === undefined) return undefined;
  pool.acquireAt(found, owner);
  pool.seek(found);
  return found;
}
