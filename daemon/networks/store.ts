import { networkOf } from "../../core/address.ts";
import type { IfName, NetworkName, PodName } from "../../core/names.ts";
import type { NetworkDefinition, SubnetDefinition } from "../config/network-definition.ts";
import type { Database } from "../store/database.ts";
import { type Row, integer, optionalText, parseJson, text } from "../store/rows.ts";

/** The operation on a network that has started; `ready` if there is none. */
type NetworkState = "creating" | "ready" | "updating" | "deleting";

export interface NetworkRow {
  readonly definition: NetworkDefinition;
  readonly state: NetworkState;
  /** The definition to go back to, with state `updating`. */
  readonly before: NetworkDefinition | undefined;
  /** Whether it is the network of podnetd's configuration. */
  readonly configured: boolean;
  readonly createdMs: number;
}

/** The stored form: name and bridge are columns, and a subnet is where its gateway is. */
type Stored = Omit<NetworkDefinition, "name" | "bridge" | "subnets"> & {
  readonly subnets: readonly Omit<SubnetDefinition, "cidr">[];
};

const stored = ({ name: _name, bridge: _bridge, ...rest }: NetworkDefinition): string =>
  JSON.stringify({ ...rest, subnets: rest.subnets.map(({ cidr: _cidr, ...subnet }) => subnet) });

function read(row: Row, json: string): NetworkDefinition {
  const { subnets, ...rest } = parseJson(json, "a network") as Stored;
  return {
    name: text<NetworkName>(row, "name"),
    bridge: text<IfName>(row, "bridge"),
    ...rest,
    subnets: subnets.map((subnet) => ({ cidr: networkOf(subnet.gateway), ...subnet })),
  };
}

function fromRow(row: Row): NetworkRow {
  const before = optionalText(row, "before");
  return {
    definition: read(row, text(row, "definition")),
    state: text<NetworkState>(row, "state"),
    before: before === undefined ? undefined : read(row, before),
    configured: integer(row, "configured") === 1,
    createdMs: integer(row, "created_ms"),
  };
}

export function listNetworks(db: Database): NetworkRow[] {
  return db.all("SELECT * FROM networks ORDER BY name").map(fromRow);
}

/** Whether one of them has rules of its own. */
export const someNetworkHasRules = (db: Database): boolean =>
  db.get("SELECT 1 FROM networks WHERE json_type(definition, '$.policy') IS NOT NULL LIMIT 1") !==
  undefined;

export function getNetwork(db: Database, name: NetworkName): NetworkRow | undefined {
  const row = db.get("SELECT * FROM networks WHERE name = ?", name);
  return row === undefined ? undefined : fromRow(row);
}

export interface NewNetwork {
  readonly state: NetworkState;
  readonly configured: boolean;
  readonly createdMs: number;
}

/** Writes a new network, or replaces one, which keeps its time of creation. */
export function putNetwork(db: Database, definition: NetworkDefinition, row: NewNetwork): void {
  db.run(
    `INSERT INTO networks (name, bridge, definition, state, configured, created_ms)
     VALUES (?, ?, ?, ?, ?, ?)
     ON CONFLICT (name) DO UPDATE SET bridge = excluded.bridge, definition = excluded.definition,
       state = excluded.state, configured = excluded.configured, before = NULL`,
    definition.name,
    definition.bridge,
    stored(definition),
    row.state,
    row.configured ? 1 : 0,
    row.createdMs,
  );
}

/**
 * Starts a change: the earlier definition is kept until the change has taken effect, also that from
 * before a change that could not be reverted.
 */
export function beginNetworkUpdate(db: Database, definition: NetworkDefinition): void {
  db.run(
    `UPDATE networks SET before = coalesce(before, definition), definition = ?, state = 'updating'
     WHERE name = ?`,
    stored(definition),
    definition.name,
  );
}

/** Records that the operation has taken effect. */
export function completeNetwork(db: Database, name: NetworkName): void {
  db.run("UPDATE networks SET state = 'ready', before = NULL WHERE name = ?", name);
}

/** The change was taken back. */
export function revertNetwork(db: Database, name: NetworkName): void {
  db.run(
    `UPDATE networks SET definition = before, before = NULL, state = 'ready'
     WHERE name = ? AND before IS NOT NULL`,
    name,
  );
}

export function markNetworkDeleting(db: Database, name: NetworkName): void {
  db.run("UPDATE networks SET state = 'deleting' WHERE name = ?", name);
}

/** Its quarantined addresses go with it. */
export function deleteNetwork(db: Database, name: NetworkName): void {
  db.run("DELETE FROM networks WHERE name = ?", name);
}

/** Names of the pods that have an interface on a network, in order. */
export function podsOnNetwork(db: Database, name: NetworkName): PodName[] {
  return db
    .all(
      `SELECT DISTINCT pods.name AS name FROM pods JOIN interfaces ON interfaces.pod_id = pods.id
       WHERE interfaces.network = ? ORDER BY pods.name`,
      name,
    )
    .map((row) => text<PodName>(row, "name"));
}

/** The services of a network, in order. */
export const servicesOnNetwork = (db: Database, network: NetworkName): string[] =>
  db
    .all("SELECT name FROM services WHERE network = ? ORDER BY name", network)
    .map((row) => text(row, "name"));

/** The containers on a network, by their ids, in order. */
export function containersOnNetwork(db: Database, network: NetworkName): string[] {
  return db
    .all(
      "SELECT DISTINCT container_id FROM attachments WHERE network = ? ORDER BY container_id",
      network,
    )
    .map((row) => text(row, "container_id"));
}
