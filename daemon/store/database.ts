import { existsSync } from "node:fs";
import { join } from "node:path";
import { backup, DatabaseSync, type SQLInputValue, type StatementSync } from "node:sqlite";
import { perform } from "../../core/effect.ts";
import { isPodnetError, PodnetError } from "../../core/errors.ts";
import { bootId } from "../../linux/processes/proc.ts";
import { CommitMark } from "./commit-mark.ts";
import { LogFlush } from "./log-flush.ts";
import { commitsIn, commitsOf, makeNew, refuseLost, refuseUnfit, upgrade } from "./found.ts";
import { type Migration, migrations } from "./migrations.ts";
import type { Reserve } from "./reserve.ts";
import { lacksRoom, openError, unwritableError, writeError } from "./sqlite-error.ts";
import { connectWithoutRoom } from "./without-room.ts";
import type { Row } from "./rows.ts";

/**
 * Durability of a commit that has returned. `always`: it survives a loss of power too. `boot`: it
 * survives any end of this process; a loss of power may remove it, together with all later commits.
 * Then it does not wait for the disk, and `flushed` makes it last without holding up the thread.
 */
export type Lasting = "always" | "boot";

export interface OpenOptions {
  /** An administrator goes on with a state that has fewer commits than it had. */
  readonly evenOlder?: boolean;
  /** Flushes the log instead of the kernel's own call, for tests that play the time. */
  readonly flushFile?: (fd: number) => Promise<void>;
}

/**
 * Purpose of a commit. `essential`: ending, deleting, stopping and starting existing objects, which
 * may use up the reserve. `new`: it takes room permanently, and is refused while the reserve is
 * incomplete.
 */
export type Need = "new" | "usual" | "essential";

/** A flush, and how many commits it takes to the disk. */
interface Flushing {
  readonly commits: number;
  readonly done: Promise<void>;
}

/**
 * One connection to the state, WAL and synchronous FULL: a commit that returned survives power
 * loss, unless it need not. All work is synchronous, so a transaction is never interleaved with
 * another.
 */
export class Database implements Disposable {
  #connection: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #depth = 0;
  #lasting: Lasting = "always";
  /** Changes of the open transaction: `insert pods`, `update runs`. */
  readonly #changes = new Set<string>();
  #reportDamage: (error: PodnetError) => void = () => {};
  #reserve: Reserve | undefined;
  readonly #whenRoom: (() => void)[] = [];
  /** Opened without room for SQLite's files: to be opened anew when there is some. */
  #cramped: boolean;
  readonly #path: string;
  /** Of all its life; see `CommitMark`. */
  #commits: number;
  /** So many of them survive a loss of power. */
  #lastingCommits = 0;
  readonly #flushFile: OpenOptions["flushFile"];
  #flush: LogFlush;
  /** The last flush that was asked for, and the commits that there were. */
  #flushed: Flushing | undefined;
  /** Commits since the log was copied. */
  #uncopied = 0;
  #mark: CommitMark | undefined;

  private constructor(
    connection: DatabaseSync,
    path: string,
    cramped: boolean,
    { flushFile }: OpenOptions = {},
  ) {
    this.#connection = connection;
    this.#path = path;
    this.#cramped = cramped;
    this.#commits = commitsIn(connection);
    this.#flushFile = flushFile;
    this.#flush = new LogFlush(path, flushFile);
    this.#openMark();
  }

  /**
   * Opens and, if it is older, upgrades the database. Never creates anew over something it cannot
   * read. Throws `STATE_CORRUPT`, also when it has fewer commits than its mark of this boot says,
   * `STATE_NEWER` or `STATE_UNWRITABLE`.
   */
  static open(
    path: string,
    steps: readonly Migration[] = migrations,
    options: OpenOptions = {},
  ): Database {
    return new Database(openConnection(path, steps, options), path, false, options);
  }

  /**
   * Opens a database that `open` cannot open because its filesystem is full. It is read-only until
   * `lookForRoom` finds room. Throws as `open` does, `STATE_UNWRITABLE` also when there is no
   * database or it is an older one.
   */
  static openWithoutRoom(path: string, steps: readonly Migration[] = migrations): Database {
    try {
      return new Database(connectWithoutRoom(path, steps), path, true);
    } catch (cause) {
      throw openError(path, cause);
    }
  }

  /** Uses this reserve from now on, see `Need`. */
  useReserve(reserve: Reserve): void {
    this.#reserve = reserve;
  }

  /** Whether something new may be taken on: there is a reserve for its end. */
  get hasRoom(): boolean {
    return !this.#cramped && this.#whenRoom.length === 0 && this.#reserve?.whole !== false;
  }

  /** Does what writes once there is room: now, or before anything new is taken on. */
  whenRoom(write: () => void): void {
    try {
      write();
    } catch (thrown) {
      if (!isPodnetError(thrown, "STATE_UNWRITABLE")) throw thrown;
      this.#whenRoom.push(write);
    }
  }

  /**
   * Looks whether there is room again, and then makes good what had to wait for it. Throws
   * `STATE_UNWRITABLE`, `STATE_CORRUPT`.
   */
  lookForRoom(): void {
    if (this.hasRoom) return;
    if (this.#cramped) this.#openAnew();
    for (let next = this.#whenRoom[0]; next !== undefined; next = this.#whenRoom[0]) {
      next();
      this.#whenRoom.shift();
    }
    this.#reserve?.make();
  }

  /** One that cannot be opened yet can still be read. */
  #openAnew(): void {
    this.#statements.clear();
    this.#lasting = "always";
    // It may have the file to itself. Its log goes with the last connection.
    this.#connection.close();
    this.#flush[Symbol.dispose]();
    this.#flush = new LogFlush(this.#path, this.#flushFile);
    this.#flushed = undefined;
    try {
      this.#connection = openConnection(this.#path, migrations);
      this.#commits = commitsIn(this.#connection);
      this.#openMark();
      this.#cramped = false;
    } catch (thrown) {
      this.#connection = connectWithoutRoom(this.#path, migrations);
      throw thrown;
    }
  }

  /** Opens the state of a state directory, see `open`. */
  static openIn(stateDir: string, steps?: readonly Migration[], options?: OpenOptions): Database {
    return Database.open(join(stateDir, "state.db"), steps, options);
  }

  /**
   * Calls `report` if the file turns out to be damaged later, which the check at the start did not
   * find.
   */
  whenDamaged(report: (error: PodnetError) => void): void {
    this.#reportDamage = report;
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
      throw this.#reported(thrown);
    }
  }

  get(sql: string, ...values: SQLInputValue[]): Row | undefined {
    try {
      return this.#execute(sql, () => this.#prepare(sql).get(...values));
    } catch (thrown) {
      throw this.#reported(thrown);
    }
  }

  all(sql: string, ...values: SQLInputValue[]): Row[] {
    try {
      return this.#prepare(sql).all(...values);
    } catch (thrown) {
      throw this.#reported(thrown);
    }
  }

  /**
   * Commits the changes of `body`, or none of them. A nested transaction joins the outer one, with
   * its durability. `what` names the effect; by default its changes do. An `essential` one is
   * repeated, `body` included, with the reserve's room when the filesystem is full. Throws
   * `STATE_UNWRITABLE`.
   */
  transaction<T>(
    body: () => T,
    what?: string,
    lasting: Lasting = "always",
    need: Need = "usual",
  ): T {
    if (this.#depth > 0) return body();
    if (need === "new" && !this.#looksForRoom()) throw this.noRoom();
    try {
      return this.#commit(body, what, lasting);
    } catch (thrown) {
      if (need !== "essential" || !this.#makesRoom(thrown)) throw thrown;
      return this.#commit(body, what, lasting);
    }
  }

  /** Whether what has failed may succeed now. */
  #makesRoom(thrown: unknown): boolean {
    if (!this.#cramped) return lacksRoom(thrown) && this.#reserve?.release() === true;
    try {
      this.#openAnew();
      return true;
    } catch {
      return false;
    }
  }

  #looksForRoom(): boolean {
    try {
      this.lookForRoom();
    } catch {
      // The error is then the lack of room.
    }
    return this.hasRoom;
  }

  /** Why nothing new is taken on. */
  noRoom(): PodnetError {
    return new PodnetError("STATE_UNWRITABLE", "The state directory is nearly full", {
      hint: `Make room there, ${Math.ceil((this.#reserve?.neededBytes ?? 0) / 1024)} KiB at the least; until then pods are only deleted, stopped and started`,
    });
  }

  #commit<T>(body: () => T, what: string | undefined, lasting: Lasting): T {
    this.#depth++;
    try {
      this.#last(lasting);
      this.#connection.exec("BEGIN IMMEDIATE");
      const result = body();
      perform("commit", what ?? [...this.#changes].join(" + "), () => this.#finish());
      return result;
    } catch (thrown) {
      // A failed COMMIT (disk full) may have rolled back by itself.
      if (this.#connection.isTransaction) this.#connection.exec("ROLLBACK");
      throw this.#reported(thrown);
    } finally {
      this.#changes.clear();
      this.#depth--;
    }
  }

  /** The commit contains its own number, which goes to the mark after it. */
  #finish(): void {
    if (this.#changes.size > 0)
      this.#prepare(
        "INSERT INTO meta (key, value) VALUES ('commits', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
      ).run(String(this.#commits + 1));
    this.#connection.exec("COMMIT");
    if (this.#changes.size === 0) return;
    this.#commits++;
    if (this.#lasting === "always") this.#lastingCommits = this.#commits;
    this.#uncopied++;
    this.#writeMark();
  }

  /** Without room there is no mark, and a loss goes unnoticed. */
  #openMark(): void {
    try {
      perform("commit", "open mark", () => {
        this.#mark ??= CommitMark.open(this.#path, bootId());
        this.#mark.write(this.#commits);
      });
    } catch {
      // There is no room for it, or it cannot be opened: the next commit tries again.
    }
  }

  #writeMark(): void {
    if (this.#mark === undefined) return this.#openMark();
    try {
      this.#mark.write(this.#commits);
    } catch {
      // There was no room to write it: the commit exists, and a lower mark causes no error.
    }
  }

  /**
   * Resolves once all commits so far survive a loss of power. All that wait share a flush, which
   * another thread carries out. Rejects with `STATE_UNWRITABLE`.
   */
  async flushed(): Promise<void> {
    if (this.#lastingCommits >= this.#commits) return;
    const { commits, done } = this.#flushing();
    try {
      await done;
    } catch (cause) {
      throw unwritableError(cause);
    }
    this.#lastingCommits = Math.max(this.#lastingCommits, commits);
  }

  /** Begins the flush that `flushed` waits for, so that the caller goes on meanwhile. */
  flushSoon(): void {
    if (this.#lastingCommits < this.#commits) this.#flushing({ now: true });
  }

  /** A flush of all commits so far; one that was asked for after the last of them serves. */
  #flushing(options?: { readonly now: boolean }): Flushing {
    const commits = this.#commits;
    if (this.#flushed?.commits === commits) return this.#flushed;
    const flushing = { commits, done: this.#flush.wait(options) };
    this.#flushed = flushing;
    // Whoever waits for it throws; the next one asks for another flush.
    flushing.done.catch(() => {
      if (this.#flushed === flushing) this.#flushed = undefined;
    });
    return flushing;
  }

  /** How many commits it has had. */
  get commits(): number {
    return this.#commits;
  }

  /**
   * Copies the log into the database, if the log has something new. One flipped bit would destroy
   * data that is in the log alone. Throws `STATE_UNWRITABLE`.
   */
  checkpoint(): void {
    if (this.#uncopied === 0 || this.#depth > 0) return;
    try {
      perform("commit", "checkpoint", () =>
        this.#connection.exec("PRAGMA wal_checkpoint(PASSIVE)"),
      );
      this.#uncopied = 0;
    } catch (thrown) {
      throw this.#reported(thrown);
    }
  }

  /**
   * Writes a whole copy to a new file, in pieces between which others go on. Throws what SQLite
   * throws.
   */
  async copyTo(file: string): Promise<void> {
    await backup(this.#connection, file, { rate: 64 });
  }

  /** Whether a transaction is open, which what is done now would join. */
  get inTransaction(): boolean {
    return this.#depth > 0;
  }

  close(): void {
    this.#statements.clear();
    // The last to close copies the log into the database.
    if (this.#connection.isOpen)
      perform("commit", "close", () => {
        this.#connection.close();
        this.#flush[Symbol.dispose]();
        this.#mark?.[Symbol.dispose]();
      });
  }

  #reported(thrown: unknown): unknown {
    const error = writeError(thrown);
    if (error !== thrown && isPodnetError(error, "STATE_CORRUPT")) this.#reportDamage(error);
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
    return this.transaction(() => {
      this.#changes.add(change);
      return call();
    }, change);
  }

  /**
   * From the next transaction on; within one it cannot be changed. A commit that is flushed flushes
   * those before it.
   */
  #last(lasting: Lasting): void {
    if (lasting === this.#lasting) return;
    this.#connection.exec(`PRAGMA synchronous = ${lasting === "always" ? "FULL" : "NORMAL"}`);
    this.#lasting = lasting;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Texts of statements are few, and each runs often. */
const changesBySql = new Map<string, string | undefined>();

/** The change of a statement: `insert pods`; undefined when it only reads. */
function changeOf(sql: string): string | undefined {
  if (!changesBySql.has(sql)) changesBySql.set(sql, readChange(sql));
  return changesBySql.get(sql);
}

function readChange(sql: string): string | undefined {
  const verb = /^\s*(INSERT|UPDATE|DELETE)(?: OR REPLACE)?(?: INTO| FROM)? (\w+)/.exec(sql);
  return verb === null ? undefined : `${verb[1]?.toLowerCase()} ${verb[2]}`;
}

function openConnection(
  path: string,
  steps: readonly Migration[],
  options: OpenOptions = {},
): DatabaseSync {
  let connection: DatabaseSync | undefined;
  try {
    const opened = new DatabaseSync(path, { timeout: 1000, open: false });
    connection = opened;
    perform("commit", "open", () => setUp(opened, path, steps, options));
    return opened;
  } catch (cause) {
    if (connection?.isOpen) connection.close();
    throw openError(path, cause);
  }
}

function setUp(
  connection: DatabaseSync,
  path: string,
  steps: readonly Migration[],
  { evenOlder = false }: OpenOptions,
): void {
  if (existsSync(path)) {
    refuseUnfit(path, steps.length);
    if (!evenOlder) refuseLost(path, commitsOf(path), bootId());
  } else makeNew(path, steps);
  connection.open();
  connection.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
  upgrade(connection, steps);
  try {
    // The log of the podnetd before; it is whole, or the state had been refused.
    connection.exec("PRAGMA wal_checkpoint(PASSIVE)");
  } catch {
    // There may be no room for it. The log is as good then.
  }
}
