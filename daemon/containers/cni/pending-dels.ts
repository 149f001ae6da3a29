import { readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { perform } from "../../../core/effect.ts";
import {
  isTemporaryName,
  isMeant,
  isPendingName,
  parsePending,
} from "../../../cni/protocol/pending.ts";
import { parseRequest } from "../../../cni/protocol/request-read.ts";
import { bodyLimit } from "../../../cni/protocol/exchange.ts";
import type { Log } from "../../../linux/log.ts";
import { bootId } from "../../../linux/processes/proc.ts";
import { readRegular } from "../../../linux/files/regular-file.ts";
import { isDamagedAttachment } from "../attachment-rows.ts";
import type { Attachments } from "../attachments.ts";

export interface PendingDelsParts {
  readonly directory: string;
  readonly attachments: Pick<Attachments, "delete">;
  readonly log: Log;
  /** The boot of the host; the one there is unless given. */
  readonly bootId?: string;
}

/**
 * Carries out the DELs that plugins wrote down while podnetd was away or overloaded. Each DEL waits
 * for its own container's lock only. A DEL that fails stays, and is reported once.
 */
export class PendingDels {
  readonly #parts: PendingDelsParts;
  readonly #bootId: string;
  readonly #underWay = new Map<string, Promise<void>>();
  /** Why a DEL cannot be done, as it was reported last, by its name. */
  readonly #reported = new Map<string, string>();

  constructor(parts: PendingDelsParts) {
    this.#parts = parts;
    this.#bootId = parts.bootId ?? bootId();
  }

  /**
   * Carries out the DELs in the directory, except those that an earlier call is still at. Never
   * rejects.
   */
  async carryOut(): Promise<void> {
    const { directory, log } = this.#parts;
    const there = this.#namesIn(directory);
    removeTemporary(directory, there, log);
    const names = new Set(there.filter(isPendingName));
    for (const name of this.#reported.keys())
      if (name !== noName && !names.has(name)) this.#reported.delete(name);
    await Promise.all(Array.from(names, (name) => this.#carryOutOnce(name)));
  }

  #carryOutOnce(name: string): Promise<void> {
    const begun = this.#underWay.get(name);
    if (begun !== undefined) return begun;
    const mine = this.#carryOutOne(name).finally(() => this.#underWay.delete(name));
    this.#underWay.set(name, mine);
    return mine;
  }

  async #carryOutOne(name: string): Promise<void> {
    const { directory, attachments } = this.#parts;
    const path = join(directory, name);
    try {
      const written = contentOf(path);
      // The plugin has reached podnetd after all.
      if (written === undefined) return;
      const pending = parsePending(written);
      const request = parseRequest(pending.env, pending.stdin);
      // The DEL does not mean a container that was attached after it was written.
      if (request.command === "DEL")
        await attachments.delete(request, (row) => {
          // A damaged record does not show when its container was attached.
          const moment = isDamagedAttachment(row) ? undefined : row.plan.claimed;
          return isMeant(pending, { createdMs: row.createdMs, moment }, this.#bootId);
        });
      // Another DEL may have replaced the file meanwhile: the next look carries it out.
      if (contentOf(path)?.equals(written) !== true) return;
      perform("file", "remove pending DEL", () => rmSync(path, { force: true }));
      this.#reported.delete(name);
    } catch (err) {
      this.#report(name, err, "A DEL that was written down cannot be done yet");
    }
  }

  #namesIn(directory: string): readonly string[] {
    try {
      const names = readdirSync(directory).toSorted();
      this.#reported.delete(noName);
      return names;
    } catch (err) {
      // Without the directory, no plugin has written a DEL yet.
      if (!isAbsent(err))
        this.#report(noName, err, "DELs that were written down cannot be looked for");
      return [];
    }
  }

  #report(name: string, err: unknown, what: string): void {
    const why = String(err);
    if (this.#reported.get(name) === why) return;
    this.#reported.set(name, why);
    this.#parts.log.error({ path: join(this.#parts.directory, name), err }, what);
  }
}

/** The directory itself. */
const noName = "";

/**
 * A plugin writes a record at once. When it finds its temporary file gone, it reports an error, and
 * the runtime repeats the DEL.
 */
const temporaryMs = 60_000;

/** Removes temporary files of plugins that were killed. */
function removeTemporary(directory: string, names: readonly string[], log: Log): void {
  for (const name of names.filter(isTemporaryName)) {
    const path = join(directory, name);
    try {
      if (statSync(path).mtimeMs < Date.now() - temporaryMs)
        perform("file", "remove temporary file of DEL", () => rmSync(path, { force: true }));
    } catch (err) {
      // Most are whole by now, and have another name.
      if (!isAbsent(err)) log.warn({ path, err }, "What a plugin left cannot be removed");
    }
  }
}

/** Longest a record may be, bytes: a request that the plugin passes on, and a little more. */
const limit = 2 * bodyLimit;

/**
 * Reads a record. Other kinds of file with such a name are refused: a pipe without a writer would
 * block podnetd.
 */
function contentOf(path: string): Buffer | undefined {
  try {
    return readRegular(path, limit);
  } catch (thrown) {
    if (isAbsent(thrown)) return undefined;
    throw thrown;
  }
}

const isAbsent = (thrown: unknown): boolean =>
  thrown instanceof Error && "code" in thrown && thrown.code === "ENOENT";
