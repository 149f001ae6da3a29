import type { Readable } from "node:stream";

/** The launcher's report: see podnet-jail.c. */
export interface JailReport {
  /** QEMU's pid as seen from here. */
  readonly pid: number | undefined;
  /** QEMU was about to be executed. */
  readonly ready: boolean;
  /** Why it was not. */
  readonly error: string | undefined;
}

/** Reads the launcher's report. Pure. */
export function parseReport(text: string): JailReport {
  const pid = /^pid (\d+)$/m.exec(text)?.[1];
  const error = /^error (.*)$/m.exec(text)?.[1];
  // `ready` is said before the execution that may fail.
  const ready = error === undefined && /^ready$/m.test(text);
  return { pid: pid === undefined ? undefined : Number(pid), ready, error };
}

/** Reads the report to the end of its stream: once QEMU is executed or the start has failed. */
export async function readReport(stream: Readable): Promise<JailReport> {
  let text = "";
  stream.setEncoding("utf8");
  for await (const chunk of stream) text += String(chunk);
  return parseReport(text);
}
