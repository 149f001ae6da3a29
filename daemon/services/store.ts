import type { BackendSpec, ServicePortSpec, ServiceSpec } from "../../api/service-spec.ts";
import type { NetworkName, ServiceName } from "../../core/names.ts";
import type { Database } from "../store/database.ts";
import { integer, parseJson, type Row, text } from "../store/rows.ts";

/** A service, every value decided. Plain JSON. */
export interface ServiceDefinition extends Omit<ServiceSpec, "ports"> {
  readonly ports: readonly ServicePortDefinition[];
  readonly backends: readonly BackendSpec[];
  /** With the scope of an overlay: which definition of etcd's it is. */
  readonly shared?: SharedMark;
}

export interface SharedMark {
  readonly overlay: string;
  /** Name of the host that changed it last. */
  readonly host: string;
  /** Of its last change in etcd; a number of 64 bits. */
  readonly revision: string;
  /** Which etcd has it, likewise. */
  readonly cluster: string;
}

export interface ServicePortDefinition extends ServicePortSpec {
  /** No other port of a service on this host has it. */
  readonly number: number;
}

/** The stored form: name and network are columns. */
type Stored = Omit<ServiceDefinition, "name" | "network">;

const fromRow = (row: Row): ServiceDefinition => ({
  name: text<ServiceName>(row, "name"),
  network: text<NetworkName>(row, "network"),
  ...(parseJson(text(row, "definition"), "a service") as Stored),
});

/** The services that were read last, with their texts: most have not changed since. */
const read = new WeakMap<Database, ReadonlyMap<string, readonly [string, ServiceDefinition]>>();

/** All services, by name. One that has not changed is the object that it was. */
export function listServices(db: Database): readonly ServiceDefinition[] {
  const before = read.get(db);
  const now = new Map(
    db.all("SELECT * FROM services ORDER BY name").map((row) => {
      const [name, stored] = [text(row, "name"), text(row, "definition")];
      const known = before?.get(name);
      return [name, known?.[0] === stored ? known : ([stored, fromRow(row)] as const)] as const;
    }),
  );
  read.set(db, now);
  return [...now.values()].map(([, service]) => service);
}

export const hasServices = (db: Database): boolean =>
  integer(db.get("SELECT count(*) AS count FROM services") as Row, "count") > 0;

export const getService = (db: Database, name: string): ServiceDefinition | undefined => {
  const row = db.get("SELECT * FROM services WHERE name = ?", name);
  return row === undefined ? undefined : fromRow(row);
};

/** Writes a new service, or replaces one, which keeps its time of creation. */
export function putService(
  db: Database,
  { name, network, ...stored }: ServiceDefinition,
  nowMs: number,
): void {
  db.run(
    `INSERT INTO services (name, network, definition, created_ms) VALUES (?, ?, ?, ?)
     ON CONFLICT (name) DO UPDATE SET definition = excluded.definition`,
    name,
    network,
    JSON.stringify(stored satisfies Stored),
    nowMs,
  );
}

/** Deletes all services. */
export const deleteServices = (db: Database): void => {
  db.run("DELETE FROM services");
};

export const deleteService = (db: Database, name: string): void => {
  db.run("DELETE FROM services WHERE name = ?", name);
};
