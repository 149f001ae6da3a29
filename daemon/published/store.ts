import type { PortSpec } from "../../api/pod-spec.ts";
import { maxPorts } from "../../api/validate/ports.ts";
import type { Ip } from "../../core/address.ts";
import type { PodId } from "../../core/names.ts";
import type { PublishedPlan } from "./published-plan.ts";
import type { AttachmentId } from "../store/holder.ts";
import type { Database } from "../store/database.ts";
import { type Row, integer, optionalText, text } from "../store/rows.ts";

/** Host ports at one address; `0.0.0.0` and `::` stand for all addresses of a family. */
export interface HostPorts {
  readonly protocol: PortSpec["protocol"];
  readonly hostIp: Ip;
  readonly hostPort: number;
  readonly count: number;
}

/** The pod or container that has the ports. */
export type PortsHolder =
  | { readonly kind: "pod"; readonly id: PodId }
  | { readonly kind: "attachment"; readonly id: AttachmentId };

/** Ports that are taken. */
export interface TakenPorts extends HostPorts {
  readonly kind: PortsHolder["kind"];
  /** A pod's name, or a container's id. */
  readonly name: string;
}

function fromRow(row: Row): TakenPorts {
  const pod = optionalText(row, "pod_name");
  return {
    ...(pod === undefined
      ? { kind: "attachment", name: text(row, "container_id") }
      : { kind: "pod", name: pod }),
    protocol: text<PortSpec["protocol"]>(row, "protocol"),
    hostIp: text<Ip>(row, "host_ip"),
    hostPort: integer(row, "host_port"),
    count: integer(row, "count"),
  };
}

/**
 * Writes host ports as planned. The primary key refuses ports that are taken: a last line behind
 * the planner.
 */
export function insertPorts(
  db: Database,
  holder: PortsHolder,
  published: readonly PublishedPlan[] = [],
): void {
  for (const ports of hostPortsOf(published)) insertPort(db, ports, holder);
}

function insertPort(
  db: Database,
  { protocol, hostPort, hostIp, count }: HostPorts,
  { kind, id }: PortsHolder,
): void {
  const column = kind === "pod" ? "pod_id" : "attachment_id";
  db.run(
    `INSERT INTO ports (protocol, host_port, host_ip, count, ${column}) VALUES (?, ?, ?, ?, ?)`,
    protocol,
    hostPort,
    hostIp,
    count,
    id,
  );
}

/** Writes host ports that a pod has in addition, and forgets those that it lacks from now on. */
export function exchangePorts(
  db: Database,
  podId: PodId,
  had: readonly PublishedPlan[] = [],
  has: readonly PublishedPlan[] = [],
): void {
  const [before, after] = [had, has].map(portsById) as [PortsById, PortsById];
  for (const [id, { protocol, hostPort, hostIp }] of before)
    if (!after.has(id))
      db.run(
        "DELETE FROM ports WHERE pod_id = ? AND protocol = ? AND host_port = ? AND host_ip = ?",
        podId,
        protocol,
        hostPort,
        hostIp,
      );
  for (const [id, ports] of after)
    if (!before.has(id)) insertPort(db, ports, { kind: "pod", id: podId });
}

type PortsById = ReadonlyMap<string, HostPorts>;

/** The host ports of a plan, each by all that its row says. */
const portsById = (published: readonly PublishedPlan[]): PortsById =>
  new Map(hostPortsOf(published).map((ports) => [JSON.stringify(ports), ports]));

const hostPortsOf = (published: readonly PublishedPlan[]): HostPorts[] =>
  published.flatMap(({ protocol, hostPort, count, at }) =>
    at.map(({ hostIp }) => ({ protocol, hostIp, hostPort, count })),
  );

/**
 * Ports of a protocol that pods and containers have, all or those that share a number with a range.
 */
export function takenPorts(
  db: Database,
  protocol: PortSpec["protocol"],
  range = { hostPort: 1, count: 65_535 },
): TakenPorts[] {
  const last = range.hostPort + range.count - 1;
  return db
    .all(
      `SELECT ports.*, pods.name AS pod_name, container_id FROM ports
       LEFT JOIN pods ON pods.id = pod_id LEFT JOIN attachments ON attachments.id = attachment_id
       WHERE protocol = ?1 AND host_port BETWEEN ?2 AND ?3 AND host_port + count > ?4
       ORDER BY host_port`,
      protocol,
      // No entry has more ports, so entries that begin lower end before.
      range.hostPort - maxPorts,
      last,
      range.hostPort,
    )
    .map(fromRow);
}
