import type { PodId } from "../../../core/names.ts";
import type { StartContainer } from "../../../guest-init/protocol/container-messages.ts";
import type { ProcessEnd } from "../../../guest-init/protocol/main-process.ts";
import type { Database } from "../../store/database.ts";
import { integer, json, optionalInteger, optionalText, type Row, text } from "../../store/rows.ts";

/** What is laid into a container, as JSON has it. */
export type StoredMount = StoredFile | StoredSource;

type StoredFile = (
  | { readonly base64: string }
  | { readonly volume: string }
  /** What its machine shares; `name` is its volume's. */
  | { readonly share: { readonly at: string; readonly below: string }; readonly name: string }
) & {
  readonly path: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly readOnly: boolean;
};

/** A file or directory of the host, which is copied each time; `name` is its volume's. */
interface StoredSource {
  readonly source: string;
  readonly name: string;
  readonly path: string;
}

/** A container as decided: an image may have another config later. Plain JSON. */
export interface ContainerPlan {
  readonly metadata: { readonly name: string; readonly attempt: number };
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  /** What is laid into it when it is made again. Absent: it never is. */
  readonly again?: readonly StoredMount[];
  /** As it was asked for. */
  readonly image: string;
  readonly digest: string;
  /** The plugged disk that has the image; containers of one image share it. */
  readonly disk: string;
  /** Absolute; absent: its output is not kept. */
  readonly log?: string;
  /** As Kubernetes gave it. */
  readonly logPath: string;
  readonly mounts: readonly {
    readonly containerPath: string;
    readonly hostPath: string;
    readonly readonly: boolean;
  }[];
  /** kubelet's file for what the container says last. */
  readonly messageFile?: string;
  readonly stopSignal: number;
  /** Its input ends with the first who is attached. */
  readonly stdinOnce?: boolean;
  readonly start: Omit<StartContainer, "id">;
}

type RowState = "creating" | "created" | "running" | "ended" | "removing";

export interface ContainerRow {
  readonly id: string;
  readonly podId: PodId;
  readonly state: RowState;
  readonly plan: ContainerPlan;
  /** The machine that it is in: a later one of its pod has no such container. */
  readonly machine: string;
  readonly createdMs: number;
  readonly startedMs: number | undefined;
  readonly endedMs: number | undefined;
  readonly end: ProcessEnd | undefined;
  /** Why it ended, where that was not by itself. */
  readonly message: string | undefined;
}

function fromRow(row: Row): ContainerRow {
  const code = optionalInteger(row, "exit_code");
  const signal = optionalInteger(row, "signal");
  return {
    id: text(row, "id"),
    podId: text<PodId>(row, "pod_id"),
    state: text<RowState>(row, "state"),
    plan: json<ContainerPlan>(row, "plan"),
    machine: text(row, "machine"),
    createdMs: integer(row, "created_ms"),
    startedMs: optionalInteger(row, "started_ms"),
    endedMs: optionalInteger(row, "ended_ms"),
    end: endOf(signal, code, integer(row, "out_of_memory") === 1),
    message: optionalText(row, "message"),
  };
}

function endOf(signal: number | undefined, code: number | undefined, isOutOfMemory: boolean) {
  const more = isOutOfMemory ? { outOfMemory: true as const } : {};
  if (signal !== undefined) return { signal, ...more };
  return code === undefined ? undefined : { code, ...more };
}

export const listContainers = (db: Database): ContainerRow[] =>
  db.all("SELECT * FROM sandbox_containers ORDER BY created_ms DESC, id").map(fromRow);

export function getContainer(db: Database, id: string): ContainerRow | undefined {
  const row = db.get("SELECT * FROM sandbox_containers WHERE id = ?", id);
  return row === undefined ? undefined : fromRow(row);
}

export function putContainer(db: Database, row: ContainerRow): void {
  const { end } = row;
  db.run(
    `INSERT OR REPLACE INTO sandbox_containers
       (id, pod_id, state, plan, machine, created_ms, started_ms, ended_ms, exit_code, signal, message,
        out_of_memory)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    row.id,
    row.podId,
    row.state,
    JSON.stringify(row.plan),
    row.machine,
    row.createdMs,
    row.startedMs ?? null,
    row.endedMs ?? null,
    end !== undefined && "code" in end ? end.code : null,
    end !== undefined && "signal" in end ? end.signal : null,
    row.message ?? null,
    end?.outOfMemory === true ? 1 : 0,
  );
}

export const deleteContainer = (db: Database, id: string): void =>
  void db.run("DELETE FROM sandbox_containers WHERE id = ?", id);
