import type { Cidr, Family, Mac } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { OverlayDesired } from "../../network/model/overlay.ts";
import type { Subnets } from "../../overlay/flannel/key.ts";
import type { Database } from "../store/database.ts";
import { getMeta, setMeta } from "../store/meta.ts";
import { parseJson, text } from "../store/rows.ts";

/**
 * The data about an overlay that the next start needs, even without etcd. Plain JSON; members that
 * an older podnetd did not write are absent.
 */
export interface OverlayRecord {
  /** This host's subnets when they were last known. */
  readonly subnets?: { readonly v4?: Cidr; readonly v6?: Cidr };
  /**
   * The properties of the network that follows the lease: they differ from the lease's until the
   * network's pods are gone.
   */
  readonly network?: { readonly subnets: readonly Cidr[]; readonly mtu: number };
  /** The MACs by which other hosts reach this one, kept across boots. */
  readonly macs?: Readonly<Partial<Record<Family, Mac>>>;
  /** The state that was last applied on the host, without peers. */
  readonly desired?: OverlayDesired;
  /** When etcd was last heard, wall clock, milliseconds. */
  readonly heardMs?: number;
  /** An administrator made this host leave the overlay. */
  readonly left?: boolean;
}

const keyOf = (name: string): `overlay ${string}` => `overlay ${name}`;

export function overlayRecord(db: Database, name: string): OverlayRecord {
  const json = getMeta(db, keyOf(name));
  return json === undefined ? {} : (parseJson(json, "an overlay") as OverlayRecord);
}

export const writeOverlay = (db: Database, name: string, record: OverlayRecord): void =>
  setMeta(db, keyOf(name), JSON.stringify(record));

/** Whether this host was ever in any. */
export const knowsOverlays = (db: Database): boolean =>
  db.get("SELECT 1 FROM meta WHERE key LIKE 'overlay %' LIMIT 1") !== undefined;

/** Names of the overlays that a network of their name follows. */
export function knownOverlays(db: Database, except: string): NetworkName[] {
  return db
    .all("SELECT key FROM meta WHERE key LIKE 'overlay %' ORDER BY key")
    .map((row) => text<NetworkName>(row, "key").slice("overlay ".length) as NetworkName)
    .filter((name) => name !== except && overlayRecord(db, name).network !== undefined);
}

/** The subnets of a record, as leases have them. */
export function recordedSubnets({ subnets }: OverlayRecord): Subnets | undefined {
  const { v4, v6 } = subnets ?? {};
  if (v4 !== undefined) return { v4, v6 };
  return v6 === undefined ? undefined : { v4, v6 };
}

/** The inverse. */
export const subnetsRecord = ({
  v4,
  v6,
}: {
  readonly v4: Cidr | undefined;
  readonly v6: Cidr | undefined;
}): NonNullable<OverlayRecord["subnets"]> => ({
  ...(v4 === undefined ? {} : { v4 }),
  ...(v6 === undefined ? {} : { v6 }),
});
