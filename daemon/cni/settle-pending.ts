import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { cross } from "../../core/crossing.ts";
import { isPendingName, parsePending } from "../../cni/protocol/pending.ts";
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
  for (const name of pendingIn(directory)) {
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

/** None where no plugin has ever written one. */
function pendingIn(directory: string): string[] {
  try {
    return readdirSync(directory).filter(isPendingName).toSorted();
  } catch {
    return [];
  }
}
