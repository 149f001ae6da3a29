import { createHash } from "node:crypto";
import { type Mac, macFromRandom } from "../../core/address.ts";
import type { IfName } from "../../core/names.ts";

/**
 * The MAC of a bridge that we made. Without one, the bridge takes its lowest port's MAC, and every
 * pod's ARP entry for the gateway becomes stale as ports come and go. A host always gives a bridge
 * an equal MAC, so that running pods keep working when an administrator deleted the bridge and
 * podnet repairs it.
 */
export function bridgeMac(hostSeed: string, bridge: IfName): Mac {
  return macFromRandom(createHash("sha256").update(`podnet\0${hostSeed}\0${bridge}`).digest());
}
