import type { OverlaySide } from "../../../network/model/overlay.ts";
import type { Database } from "../../store/database.ts";
import { deleteMeta, getMeta, setMeta } from "../../store/meta.ts";
import { parseJson } from "../../store/rows.ts";

/** The other hosts of an overlay as they were made known to the kernel. Plain JSON. */
export interface KnownPeers {
  /** The boot of this host in which they were. */
  readonly bootId: string;
  /** Wall clock, milliseconds. */
  readonly writtenMs: number;
  readonly sides: readonly Pick<OverlaySide, "network" | "peers">[];
}

const keyOf = (overlay: string): `peers of ${string}` => `peers of ${overlay}`;

export function knownPeers(db: Database, overlay: string): KnownPeers | undefined {
  const json = getMeta(db, keyOf(overlay));
  return json === undefined ? undefined : (parseJson(json, "peers") as KnownPeers);
}

export const writePeers = (db: Database, overlay: string, known: KnownPeers): void =>
  setMeta(db, keyOf(overlay), JSON.stringify(known));

export const forgetPeers = (db: Database, overlay: string): void => deleteMeta(db, keyOf(overlay));
