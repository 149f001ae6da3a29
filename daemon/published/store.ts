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
  { kind, id }: PortsHolder,
  published: readonly PublishedPlan[] = [],
): void {
  const column = kind === "pod" ? "pod_id" : "attachment_id";
  for (const { protocol, hostPort, count, at } of published)
    for (const { hostIp } of at)
      db.run(
        `INSERT INTO ports (protocol, host_port, host_ip, count, ${column}) VALUES (?, ?, ?, ?, ?)`,
        protocol,
        hostPort,
        hostIp,
        count,
        id,
      );
}

/** Forgets all host ports of a pod, to write them anew. */
export function deletePorts(db: Database, podId: PodId): void {
  db.run("DELETE FROM ports WHERE pod_id = ?", podId);
}

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
