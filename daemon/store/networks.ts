import type { IpPrefix } from "../../core/address.ts";
import type { IfName, NetworkName } from "../../core/names.ts";
import type { Database, Row } from "./database.ts";
import { integer, text } from "./rows.ts";

export interface NetworkRow {
  readonly name: NetworkName;
  readonly bridge: IfName;
  /** The gateway with the network's length. */
  readonly gateway: IpPrefix;
  readonly mtu: number;
  readonly createdMs: number;
}

const fromRow = (row: Row): NetworkRow => ({
  name: text<NetworkName>(row, "name"),
  bridge: text<IfName>(row, "bridge"),
  gateway: text<IpPrefix>(row, "gateway"),
  mtu: integer(row, "mtu"),
  createdMs: integer(row, "created_ms"),
});

export function listNetworks(db: Database): NetworkRow[] {
  return db.all("SELECT * FROM networks ORDER BY name").map(fromRow);
}

export function putNetwork(db: Database, network: NetworkRow): void {
  db.run(
    `INSERT INTO networks (name, bridge, gateway, mtu, created_ms) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (name) DO UPDATE SET bridge = excluded.bridge, gateway = excluded.gateway, mtu = excluded.mtu`,
    network.name,
    network.bridge,
    network.gateway,
    network.mtu,
    network.createdMs,
  );
}

export function deleteNetwork(db: Database, name: NetworkName): void {
  db.run("DELETE FROM networks WHERE name = ?", name);
}
