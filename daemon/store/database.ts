import { existsSync } from "node:fs";
import { join } from "node:path";
import {
  DatabaseSync,
  type SQLInputValue,
  type SQLOutputValue,
  type StatementSync,
} from "node:sqlite";
import { cross } from "../../core/crossing.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { makeNew, refuseUnfit, upgrade } from "./found.ts";
import { migrations } from "./migrations.ts";
import { damaged } from "./rows.ts";

export type Row = Record<string, SQLOutputValue>;

/**
 * What a commit survives once it has returned: `always`, a loss of power too; `boot`, the end of this process in whatever way,
 * but no loss of power, which may take it and no later one instead of it. The disk is not waited for then.
 */
export type Lasting = "always" | "boot";

/**
 * One connection to the state, WAL and synchronous FULL: a commit that returned survives power loss, unless it need not.
 * All work is synchronous, so a transaction is never interleaved with another.
 */
export class Database implements Disposable {
  readonly #connection: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #depth = 0;
  #lasting: Lasting = "always";
  /** What the transaction that is open has changed: `insert pods`, `update runs`. */
  readonly #changes = new Set<string>();
  #tellOfDamage: (error: PodnetError) => void = () => {};

  private constructor(connection: DatabaseSync) {
    this.#connection = connection;
  }

  /**
   * Opens and, if it is older, upgrades the database. Never creates anew over something it cannot read.
   * Throws `STATE_CORRUPT`, `STATE_NEWER` or `STATE_UNWRITABLE`.
   */
  static open(path: string, steps: readonly string[] = migrations): Database {
    let connection: DatabaseSync | undefined;
    try {
      const opened = new DatabaseSync(path, { timeout: 1000, open: false });
      connection = opened;
      cross("commit", "open", () => setUp(opened, path, steps));
      return new Database(connection);
    } catch (cause) {
      if (connection?.isOpen) connection.close();
      throw openError(path, cause);
    }
  }

  /** Opens the state of a state directory, see `open`. */
  static openIn(stateDir: string, steps?: readonly string[]): Database {
    return Database.open(join(stateDir, "state.db"), steps);
  }

  /** Tells from now on when the file turns out to be damaged, which a look at its start has not shown. */
  whenDamaged(tell: (error: PodnetError) => void): void {
    this.#tellOfDamage = tell;
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#connection.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  /** Runs a statement and returns how many rows it changed. Throws `STATE_UNWRITABLE`. */
  run(sql: string, ...values: SQLInputValue[]): number {
    try {
      return this.#execute(sql, () => Number(this.#prepare(sql).run(...values).changes));
    } catch (thrown) {
      throw this.#told(thrown);
    }
  }

  get(sql: string, ...values: SQLInputValue[]): Row | undefined {
    try {
      return this.#execute(sql, () => this.#prepare(sql).get(...values));
    } catch (thrown) {
      throw this.#told(thrown);
    }
  }

  all(sql: string, ...values: SQLInputValue[]): Row[] {
    try {
      return this.#prepare(sql).all(...values);
    } catch (thrown) {
      throw this.#told(thrown);
    }
  }

  /**
   * Commits what `body` does, or nothing of it. A transaction within one joins it, and lasts as that does. `what` names its
   * crossing; without one what it changes does. Throws `STATE_UNWRITABLE`.
   */
  transaction<T>(body: () => T, what?: string, lasting: Lasting = "always"): T {
    if (this.#depth > 0) return body();
    this.#depth++;
    try {
      this.#last(lasting);
      this.#connection.exec("BEGIN IMMEDIATE");
      const result = body();
      cross("commit", what ?? [...this.#changes].join(" + "), () =>
        this.#connection.exec("COMMIT"),
      );
      return result;
    } catch (thrown) {
      // A failed COMMIT (disk full) may have rolled back by itself.
      if (this.#connection.isTransaction) this.#connection.exec("ROLLBACK");
      throw this.#told(thrown);
    } finally {
      this.#changes.clear();
      this.#depth--;
    }
  }

  /** Whether a transaction is open, which what is done now would join. */
  get inTransaction(): boolean {
    return this.#depth > 0;
  }

  close(): void {
    this.#statements.clear();
    // The last to close copies the log into the database.
    if (this.#connection.isOpen) cross("commit", "close", () => this.#connection.close());
  }

  #told(thrown: unknown): unknown {
    const error = writeError(thrown);
    if (error !== thrown && isPodnetError(error, "STATE_CORRUPT")) this.#tellOfDamage(error);
    return error;
  }

  /** A change outside of a transaction is one by itself. */
  #execute<T>(sql: string, call: () => T): T {
    const change = changeOf(sql);
    if (change === undefined) return call();
    if (this.#depth > 0) {
      this.#changes.add(change);
      return call();
    }
    this.#last("always");
    return cross("commit", change, call);
  }

  /** From the next transaction on; within one it cannot be changed. A commit that is flushed flushes those before it. */
  #last(lasting: Lasting): void {
    if (lasting === this.#lasting) return;
    this.#connection.exec(`PRAGMA synchronous = ${lasting === "always" ? "FULL" : "NORMAL"}`);
    this.#lasting = lasting;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** What a statement changes: `insert pods`; undefined when it only reads. */
function changeOf(sql: string): string | undefined {
  const verb = /^\s*(INSERT|UPDATE|DELETE)(?: OR REPLACE)?(?: INTO| FROM)? (\w+)/.exec(sql);
  return verb === null ? undefined : `${verb[1]?.toLowerCase()} ${verb[2]}`;
}

function setUp(connection: DatabaseSync, path: string, steps: readonly string[]): void {
  if (existsSync(path)) refuseUnfit(path, steps.length);
  else makeNew(path, steps);
  connection.open();
  connection.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
  upgrade(connection, steps);
}

/** SQLite's extended codes keep the primary one in the low byte. */
const extendedCode = (thrown: unknown): number =>
  thrown instanceof Error && "errcode" in thrown ? Number(thrown.errcode) : 0;
const sqliteCode = (thrown: unknown): number => extendedCode(thrown) & 0xff;
const unwritable = new Set([3, 8, 10, 13, 14]); // PERM, READONLY, IOERR, FULL, CANTOPEN
const corrupt = new Set([11, 26]); // CORRUPT, NOTADB

function openError(path: string, cause: unknown): PodnetError {
  if (isPodnetError(cause)) return cause;
  // What `node:fs` throws: SQLite's own code is ERR_SQLITE_ERROR.
  const { code = "" } = cause as NodeJS.ErrnoException;
  if (/^E[A-Z]+$/.test(code)) return unwritableError(cause);
  if (unwritable.has(sqliteCode(cause))) return writeError(cause) as PodnetError;
  return new PodnetError("STATE_CORRUPT", `State "${path}" cannot be read`, {
    hint: "Restore it from a backup; or stop the pods, move the file away and start anew. podnetd never deletes it",
    cause,
  });
}

function writeError(cause: unknown): unknown {
  const code = sqliteCode(cause);
  if (corrupt.has(code)) return damaged(cause instanceof Error ? cause.message : "", cause);
  return unwritable.has(code) ? unwritableError(cause) : cause;
}

const unwritableError = (cause: unknown): PodnetError =>
  new PodnetError("STATE_UNWRITABLE", "The state database cannot be written", {
    hint: "Check free space and permissions of the state directory",
    details: { sqlite: cause instanceof Error ? cause.message : "", code: extendedCode(cause) },
    cause,
  });
