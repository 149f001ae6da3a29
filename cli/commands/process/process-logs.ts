import { timestampDate, timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Podnet } from "../../../api/client.ts";
import type { Io, Output } from "../../io.ts";
import { parseDuration } from "../../parse.ts";
import { sayNothing, tamed, write } from "../../terminal.ts";
import { usage } from "../../usage.ts";

export interface ProcessLogs {
  readonly idOrName: string;
  readonly follow: boolean;
  readonly lines: number | undefined;
  /** As given: a duration, or a time. */
  readonly since: string | undefined;
  readonly timestamps: boolean;
}

const lineFeed = 10;

/** Prints what a pod's main process wrote: its errors to standard error. */
export async function printLogs(
  io: Io,
  podnet: Podnet,
  { idOrName, follow, lines, since, timestamps }: ProcessLogs,
  signal: AbortSignal,
): Promise<void> {
  const request = {
    idOrName,
    follow,
    ...(lines === undefined ? {} : { tailLines: lines }),
    ...(since === undefined ? {} : { since: timestampFromMs(sinceMs(since, Date.now())) }),
  };
  const outs = { stdout: printer(io.stdout), stderr: printer(io.stderr) };
  let isEmpty = true;
  for await (const { output, time } of podnet.pods.logs(request, { signal })) {
    if (output.case === undefined) continue;
    isEmpty = false;
    const stamp = timestamps && time !== undefined ? timestampDate(time).toISOString() : undefined;
    await outs[output.case](output.value, stamp);
  }
  const isAll = !follow && lines === undefined && since === undefined;
  if (isAll && isEmpty) sayNothing(io.stderr, "The pod's main process has written nothing");
}

/** Prints pieces, on a terminal without what would change it; lines with their time, if wanted. */
function printer(out: Output): (data: Uint8Array, stamp: string | undefined) => Promise<void> {
  const fit = out.isTTY === true ? tamed() : (data: Uint8Array) => data;
  let atStart = true;
  return async (data, stamp) => {
    if (stamp === undefined) return write(out, fit(data));
    for (let from = 0; from < data.length; ) {
      const end = data.indexOf(lineFeed, from);
      const line = data.subarray(from, end === -1 ? data.length : end + 1);
      if (atStart) await write(out, Buffer.from(`${stamp} `));
      await write(out, fit(line));
      atStart = end !== -1;
      from += line.length;
    }
  };
}

/** A time as docker has it: `10m` before now, or a date with a time. */
function sinceMs(text: string, nowMs: number): number {
  if (/^[0-9]{4}-/.test(text)) {
    const ms = Date.parse(text);
    if (!Number.isNaN(ms)) return ms;
    throw usage(`--since "${text}" is no time`, "Write 10m, or 2026-01-31T12:00:00Z");
  }
  return nowMs - parseDuration("--since", text);
}
