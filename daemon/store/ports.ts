import type { PortSpec } from "../../api/pod-spec.ts";
import { maxPorts } from "../../api/validate-ports.ts";
import type { Ip } from "../../core/address.ts";
import type { PodId, PodName } from "../../core/names.ts";
import type { PodPlan } from "../pod/pod-plan.ts";
import type { Database, Row } from "./database.ts";
import { integer, text } from "./rows.ts";

/** Host ports at one address; `0.0.0.0` and `::` stand for every one of a family. */
export interface HostPorts {
  readonly protocol: PortSpec["protocol"];
  readonly hostIp: Ip;
  readonly hostPort: number;
  readonly count: number;
}

/** Those that a pod has. */
export interface TakenPorts extends HostPorts {
  readonly podId: PodId;
  readonly podName: PodName;
}

const fromRow = (row: Row): TakenPorts => ({
  podId: text<PodId>(row, "pod_id"),
  podName: text<PodName>(row, "name"),
  protocol: text<PortSpec["protocol"]>(row, "protocol"),
  hostIp: text<Ip>(row, "host_ip"),
  hostPort: integer(row, "host_port"),
  count: integer(row, "count"),
});

/** Writes the host ports of a plan. The primary key refuses what another pod has: a last line behind the planner. */
export function insertPorts(db: Database, { podId, published = [] }: PodPlan): void {
  for (const { protocol, hostPort, count, at } of published)
    for (const { hostIp } of at)
      db.run(
        "INSERT INTO ports (protocol, host_port, host_ip, count, pod_id) VALUES (?, ?, ?, ?, ?)",
        protocol,
        hostPort,
        hostIp,
        count,
        podId,
      );
}

/** Forgets all host ports of a pod, to write them anew. */
export function deletePorts(db: Database, podId: PodId): void {
  db.run("DELETE FROM ports WHERE pod_id = ?", podId);
}

/** Ports of a protocol that pods have, all or those that share a number with a range. */
export function takenPorts(
  db: Database,
  protocol: PortSpec["protocol"],
  range = { hostPort: 1, count: 65_535 },
): TakenPorts[] {
  const last = range.hostPort + range.count - 1;
  return db
    .all(
      `SELECT ports.*, pods.name FROM ports JOIN pods ON pods.id = pod_id
       WHERE protocol = ?1 AND host_port BETWEEN ?2 AND ?3 AND host_port + count > ?4
       ORDER BY host_port`,
      protocol,
      // No entry has more ports: those that begin lower end before.
      range.hostPort - maxPorts,
      last,
      range.hostPort,
    )
    .map(fromRow);
}
