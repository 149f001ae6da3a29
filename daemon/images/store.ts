import type { CgroupPlan, ProcessRecord } from "../../hypervisor/driver.ts";
import type { Digest } from "../../images/archive/digest.ts";
import type { ImageConfig } from "../../images/archive/image.ts";
import type { DiskFormat } from "../../images/archive/recognize.ts";
import type { Database } from "../store/database.ts";
import { integer, json, type Row, text } from "../store/rows.ts";

/** An image's file: the root of pods on podnet's kernel, or a disk with a system of its own. */
export type ImageType = "root" | "disk";

/**
 * `storing`: its file may be there in part; `removing`: its file may still be there. Only an image
 * that is `ready` can be found.
 */
type ImageState = "storing" | "ready" | "removing";

/** How an image's main process is started; nothing of that for a disk. */
interface StoredConfig extends ImageConfig {
  /** How a disk is written; absent for a root. */
  readonly diskFormat?: DiskFormat;
}

/** An image as its row has it. */
export interface ImageRow {
  readonly digest: Digest;
  readonly type: ImageType;
  readonly state: ImageState;
  /** As `REGISTRY/PATH:TAG`, in order. */
  readonly names: readonly string[];
  readonly config: StoredConfig;
  /** Of its file. */
  readonly bytes: number;
  readonly createdMs: number;
  readonly usedMs: number;
}

const columns = `digest, type, state, config, bytes, created_ms, used_ms,
  (SELECT json_group_array(name) FROM
    (SELECT name FROM image_names WHERE image_names.digest = images.digest ORDER BY name)
  ) AS names`;

const fromRow = (row: Row): ImageRow => ({
  digest: text<Digest>(row, "digest"),
  type: text<ImageType>(row, "type"),
  state: text<ImageState>(row, "state"),
  names: json<string[]>(row, "names"),
  config: json<StoredConfig>(row, "config"),
  bytes: integer(row, "bytes"),
  createdMs: integer(row, "created_ms"),
  usedMs: integer(row, "used_ms"),
});

/** All images, whatever their state, by digest. */
export const listImages = (db: Database): readonly ImageRow[] =>
  db.all(`SELECT ${columns} FROM images ORDER BY digest`).map(fromRow);

/** Images that are ready and whose digest begins so: two at most. */
export const imagesBeginning = (db: Database, prefix: string): readonly ImageRow[] =>
  db
    .all(
      `SELECT ${columns} FROM images
       WHERE state = 'ready' AND substr(digest, 1, length(?1)) = ?1 ORDER BY digest LIMIT 2`,
      prefix,
    )
    .map(fromRow);

/** The image of a name; undefined when there is none. */
export function imageNamed(db: Database, name: string): ImageRow | undefined {
  const row = db.get(
    `SELECT ${columns} FROM images
     WHERE state = 'ready' AND digest = (SELECT digest FROM image_names WHERE name = ?)`,
    name,
  );
  return row === undefined ? undefined : fromRow(row);
}

/** Writes an image's row, or replaces it, names left alone. */
export function putImage(db: Database, image: Omit<ImageRow, "names">): void {
  const { digest, type, state, config, bytes, createdMs, usedMs } = image;
  db.run(
    `INSERT INTO images (digest, type, state, config, bytes, created_ms, used_ms)
     VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (digest) DO UPDATE SET type = excluded.type, state = excluded.state,
       config = excluded.config, bytes = excluded.bytes, used_ms = excluded.used_ms`,
    digest,
    type,
    state,
    JSON.stringify(config),
    bytes,
    createdMs,
    usedMs,
  );
}

/** Gives a name to an image; another one that has it loses it. */
export function putName(db: Database, name: string, digest: Digest): void {
  db.run(
    `INSERT INTO image_names (name, digest) VALUES (?, ?)
     ON CONFLICT (name) DO UPDATE SET digest = excluded.digest`,
    name,
    digest,
  );
}

export const deleteName = (db: Database, name: string): void => {
  db.run("DELETE FROM image_names WHERE name = ?", name);
};

/** Takes an image's names, and marks that its file is being removed. */
export function markRemoving(db: Database, digest: Digest): void {
  db.transaction(() => {
    db.run("DELETE FROM image_names WHERE digest = ?", digest);
    db.run("UPDATE images SET state = 'removing' WHERE digest = ?", digest);
  });
}

/** Deletes a row, whose file is gone. */
export const deleteImage = (db: Database, digest: Digest): void => {
  db.run("DELETE FROM images WHERE digest = ?", digest);
};

export const touchImage = (db: Database, digest: Digest, nowMs: number): void => {
  db.run("UPDATE images SET used_ms = ? WHERE digest = ?", nowMs, digest);
};

/** Work on an image that is under way, or was when podnetd ended: it has a directory. */
export interface ImageJobRow {
  readonly id: string;
  /** Of its worker. */
  readonly cgroups: readonly CgroupPlan[];
  /** Its worker, once that runs. */
  readonly worker: ProcessRecord | undefined;
}

export const putJob = (
  db: Database,
  { id, cgroups }: Omit<ImageJobRow, "worker">,
  nowMs: number,
): void => {
  db.run(
    "INSERT INTO image_jobs (id, cgroups, created_ms) VALUES (?, ?, ?)",
    id,
    JSON.stringify(cgroups),
    nowMs,
  );
};

/** Records a job's worker. */
export const putWorker = (db: Database, id: string, worker: ProcessRecord): void => {
  db.run(
    "UPDATE image_jobs SET pid = ?, start_time = ?, boot_id = ? WHERE id = ?",
    worker.pid,
    worker.startTime,
    worker.bootId,
    id,
  );
};

export const listJobs = (db: Database): readonly ImageJobRow[] =>
  db.all("SELECT * FROM image_jobs ORDER BY id").map((row) => ({
    id: text(row, "id"),
    cgroups: json<CgroupPlan[]>(row, "cgroups"),
    worker:
      row["pid"] === null
        ? undefined
        : {
            pid: integer(row, "pid"),
            startTime: text(row, "start_time"),
            bootId: text(row, "boot_id"),
          },
  }));

export const deleteJob = (db: Database, id: string): void => {
  db.run("DELETE FROM image_jobs WHERE id = ?", id);
};
