import { constants } from "node:fs";
import { open, rename } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { performAsync } from "../../core/effect.ts";
import { guard } from "../../core/guard.ts";
import type { Log } from "../../linux/log.ts";
import type { DenialOwner } from "./denial-owner.ts";
import { type Denial, keyOf } from "./denials.ts";
import type { Verdict } from "./verdicts.ts";

export interface AuditLogParts {
  readonly path: string;
  /** The file is renamed to `PATH.1` before it is larger, and begins anew. */
  readonly mostBytes: number;
  readonly ownerOf: (holder: string) => DenialOwner | undefined;
  readonly log: Log;
  /** Wall clock, milliseconds. */
  readonly now: () => number;
}

/** Bytes that wait to be written; what comes above is dropped, and counted. */
const mostWaiting = 1 << 20;
/** Between two lines with one count, and two of podnetd's own log, milliseconds. */
const intervalMs = 60_000;
const longestEndMs = 1000;

/**
 * Writes denials to a file, a JSON object a line: each as it is shown live, and every minute the
 * counts that have grown, which lack nothing. The file is bounded, and whatever happens to it
 * happens to it alone: where it cannot be written, lines are dropped and counted.
 */
export class AuditLog implements AsyncDisposable {
  readonly #parts: AuditLogParts;
  #waiting: string[] = [];
  #bytes = 0;
  #dropped = 0;
  #writing: Promise<void> | undefined;
  #warnedMs = -Infinity;
  /** By rule and holder: what was written last, and when. */
  readonly #counts = new Map<string, { readonly count: number; readonly atMs: number }>();

  constructor(parts: AuditLogParts) {
    this.#parts = parts;
  }

  /** After what waits has been written, unless that takes long. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.race([this.#writing, delay(longestEndMs, undefined, { ref: false })]);
  }

  add({ timeMs, owner, holder: _holder, ...denied }: Verdict): void {
    this.#line(timeMs, "denied", owner, denied);
  }

  /** Writes the counts that have grown. */
  addCounts(denials: readonly Denial[]): void {
    const nowMs = this.#parts.now();
    const gone = new Set(this.#counts.keys());
    for (const denial of denials) {
      const key = keyOf(denial);
      gone.delete(key);
      const last = this.#counts.get(key);
      if (last?.count === denial.count) continue;
      if (last !== undefined && nowMs - last.atMs < intervalMs) continue;
      this.#counts.set(key, { count: denial.count, atMs: nowMs });
      const { holder, ...counted } = denial;
      this.#line(nowMs, "counted", this.#parts.ownerOf(holder), counted);
    }
    for (const key of gone) this.#counts.delete(key);
  }

  #line(timeMs: number, event: string, owner: DenialOwner | undefined, fields: object): void {
    const { pod, container } = owner ?? {};
    const of = pod === undefined ? { container } : { pod: pod.name };
    const time = new Date(timeMs).toISOString();
    const line = `${JSON.stringify({ time, event, ...of, ...fields })}\n`;
    if (this.#bytes + line.length > mostWaiting) {
      this.#dropped++;
      return;
    }
    this.#bytes += line.length;
    this.#waiting.push(line);
    this.#writing ??= guard("store", () => this.#writeAll());
  }

  async #writeAll(): Promise<void> {
    // What comes in one turn is written at once.
    await Promise.resolve();
    try {
      while (this.#waiting.length > 0) await this.#write(this.#waiting.splice(0));
    } finally {
      this.#writing = undefined;
    }
  }

  async #write(lines: readonly string[]): Promise<void> {
    const { now } = this.#parts;
    const dropped = this.#dropped;
    const time = new Date(now()).toISOString();
    const lost =
      dropped === 0 ? [] : [`${JSON.stringify({ time, event: "lost", lines: dropped })}\n`];
    this.#bytes -= lines.reduce((sum, { length }) => sum + length, 0);
    try {
      await this.#append([...lost, ...lines].join(""));
      this.#dropped -= dropped;
    } catch (thrown) {
      this.#dropped += lines.length;
      this.#warn(thrown);
    }
  }

  async #append(text: string): Promise<void> {
    const { path, mostBytes } = this.#parts;
    if (await appendTo(path, text, mostBytes)) return;
    await performAsync("file", "rename policy log", () => rename(path, `${path}.1`));
    await appendTo(path, text, mostBytes);
  }

  #warn(err: unknown): void {
    const { log, path, now } = this.#parts;
    if (now() - this.#warnedMs < intervalMs) return;
    this.#warnedMs = now();
    log.warn({ err, path, dropped: this.#dropped }, "Cannot write denials to policy_log");
  }
}

const { O_WRONLY, O_CREAT, O_APPEND, O_NOFOLLOW, O_NONBLOCK } = constants;
const flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK;

/**
 * Appends to a file unless it would be too large with it, and says whether it did. A text that does
 * not fit on the disk is not there at all.
 */
const appendTo = (path: string, text: string, mostBytes: number): Promise<boolean> =>
  performAsync("file", "append to policy log", async () => {
    await using file = await open(path, flags, 0o600);
    const { size } = await file.stat();
    if (size > 0 && size + Buffer.byteLength(text) > mostBytes) return false;
    try {
      await file.appendFile(text);
    } catch (thrown) {
      await file.truncate(size).catch(() => {});
      throw thrown;
    }
    return true;
  });
