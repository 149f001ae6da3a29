import { readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { cross } from "../../core/crossing.ts";
import { isDraftName, isPendingName, parsePending } from "../../cni/protocol/pending.ts";
import { parseRequest } from "../../cni/protocol/request-read.ts";
import type { Log } from "../../linux/log.ts";
import type { Attachments } from "./attachments.ts";

export interface SettlePending {
  readonly directory: string;
  readonly attachments: Pick<Attachments, "delete" | "named">;
  readonly log: Log;
}

/**
 * Does the DELs that plugins wrote down while podnetd was away. What was attached after one was written is not meant by it.
 * A record that cannot be done stays for the next start, and is told of.
 */
export async function settlePending({ directory, attachments, log }: SettlePending): Promise<void> {
  removeDrafts(directory, log);
  for (const name of namesIn(directory).filter(isPendingName)) {
    const path = join(directory, name);
    try {
      const { env, stdin, atMs } = parsePending(readFileSync(path));
      const request = parseRequest(env, stdin);
      if (request.command === "DEL") {
        const row = attachments.named(request);
        if (row !== undefined && row.createdMs <= atMs) await attachments.delete(request);
      }
      cross("file", "remove pending DEL", () => rmSync(path, { force: true }));
    } catch (err) {
      log.error({ path, err }, "A DEL that came while podnetd was away cannot be done");
    }
  }
}

/** A plugin writes one in no time; one that finds it gone says that it could not, and is asked again. */
const draftMs = 60_000;

/** What plugins that were killed have left of records. */
function removeDrafts(directory: string, log: Log): void {
  for (const name of namesIn(directory).filter(isDraftName)) {
    const path = join(directory, name);
    try {
      if (statSync(path).mtimeMs < Date.now() - draftMs)
        cross("file", "remove draft of DEL", () => rmSync(path, { force: true }));
    } catch (err) {
      log.warn({ path, err }, "What a plugin left cannot be removed");
    }
  }
}

/** None where no plugin has ever written one. */
function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory).toSorted();
  } catch {
    return [];
  }
}
