import { isIp, type Ip, type IpPrefix, ipOf } from "../../../core/address.ts";
import type { IfName, PodId, PodName } from "../../../core/names.ts";
import type { OnBridge } from "../plan/snapshot.ts";
import type { Database } from "../../store/database.ts";
import { type Row, optionalInteger, text } from "../../store/rows.ts";

/**
 * Queries stored plans of hundreds of pods at once. `pods` is the table. When the query fails, a
 * plan is damaged, and `pods` becomes the table without invalid JSON, which takes longer.
 */
function askPlans(
  db: Database,
  sql: (pods: string) => string,
  ...values: readonly (string | number)[]
): Row[] {
  try {
    return db.all(sql("pods"), ...values);
  } catch {
    return db.all(sql(readable), ...values);
  }
}

const readable = `(SELECT id, name, CASE WHEN json_valid(plan) THEN plan END AS plan,
  CASE WHEN json_valid(before) THEN before END AS before FROM pods)`;

/** An element of a list, if it is an object: SQLite would take any other value for invalid JSON. */
const object = (each: string): string => `CASE WHEN ${each}.type = 'object' THEN ${each}.value END`;

/** The users of all pods' machines, also of those that do not run: they start again as the same. */
export function uidsOfPods(db: Database): Set<number> {
  const rows = askPlans(db, (pods) => `SELECT plan ->> '$.vm.jail.uid' AS uid FROM ${pods}`);
  // A machine may run on though its pod's record is damaged.
  const running = db.all("SELECT uid FROM runs");
  return new Set(
    [...rows, ...running].flatMap(({ uid }) => (typeof uid === "number" ? [uid] : [])),
  );
}

/** A file of a pod, and whether the pod writes to the file itself. */
export interface FileOfPod {
  readonly pod: PodName;
  readonly path: string;
  readonly writes: boolean;
}

/** Kernel, initramfs and disk files of all pods, running or not. */
export function filesOfPods(db: Database): FileOfPod[] {
  const rows = askPlans(
    db,
    (pods) =>
      `WITH disks AS (SELECT name AS pod, ${object("disk")} AS disk
         FROM ${pods} AS pods, json_each(pods.plan, '$.vm.disks') AS disk)
       SELECT pod, disk ->> '$.path' AS path,
         disk ->> '$.readOnly' = 0 AND disk -> '$.overlay' IS NULL AS writes FROM disks
       UNION ALL
       SELECT pod, disk ->> '$.overlay.path', 1 FROM disks WHERE disk -> '$.overlay' IS NOT NULL
       UNION ALL
       SELECT name, disk.value ->> '$.path', disk.value ->> '$.readOnly' = 0
         FROM ${pods} AS pods, json_each(pods.plan, '$.disks') AS disk WHERE disk.type = 'object'
       UNION ALL
       SELECT name, plan ->> '$.vm.kernel', 0 FROM ${pods} WHERE plan ->> '$.vm.kernel' IS NOT NULL
       UNION ALL
       SELECT name, plan ->> '$.vm.initrd', 0 FROM ${pods} WHERE plan ->> '$.vm.initrd' IS NOT NULL`,
  );
  return rows.flatMap((row) => {
    const { path, writes } = row;
    // podnetd's plans say whether a disk is written to. Where one does not, it is assumed to be.
    return typeof path === "string"
      ? [{ pod: text<PodName>(row, "pod"), path, writes: writes !== 0 }]
      : [];
  });
}

/** Names of the pods, running or not, that use a file. */
export const namesOfHolders = (db: Database, file: string): readonly PodName[] => [
  ...new Set(filesOfPods(db).flatMap(({ pod, path }) => (path === file ? [pod] : []))),
];

/** Whether a pod's plan names this server as a name server. */
export const isNameServer = (db: Database, server: Ip): boolean =>
  askPlans(
    db,
    (pods) =>
      `SELECT 1 FROM ${pods} AS pods, json_each(pods.plan, '$.dns.servers') AS server
       WHERE server.value = ? LIMIT 1`,
    server,
  ).length > 0;

/** The addresses of pods on a foreign bridge, also those that a pod under change may go back to. */
export function addressesOnBridge(db: Database, bridge: IfName): OnBridge[] {
  const rows = askPlans(
    db,
    (pods) =>
      `WITH interfaces AS (SELECT plans.id, plans.name, ${object("each")} AS interface
         FROM (SELECT id, name, plan FROM ${pods}
               UNION ALL SELECT id, name, before -> '$.plan' FROM ${pods} WHERE before IS NOT NULL) AS plans,
           json_each(plans.plan, '$.interfaces') AS each)
       SELECT DISTINCT interfaces.id, interfaces.name, interface ->> '$.nic.tap' AS tap,
         interface ->> '$.port.vlan' AS vlan, address.value AS address
       FROM interfaces, json_each(interface, '$.addresses') AS address
       WHERE interface ->> '$.network' IS NULL AND interface ->> '$.leaving' IS NULL
         AND interface ->> '$.bridge' = ?`,
    bridge,
  );
  return rows.filter(isOnBridge).map((row) => ({
    bridge,
    vlan: optionalInteger(row, "vlan"),
    address: text<IpPrefix>(row, "address"),
    tap: text<IfName>(row, "tap"),
    podId: text<PodId>(row, "id"),
    podName: text<PodName>(row, "name"),
  }));
}

const isOnBridge = ({ address, tap, vlan }: Row): boolean =>
  typeof address === "string" &&
  isIp(ipOf(address as IpPrefix)) &&
  typeof tap === "string" &&
  (vlan === null || typeof vlan === "number");
