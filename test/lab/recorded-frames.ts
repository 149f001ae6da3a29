import { readFileSync } from "node:fs";
import { join } from "node:path";
import { command } from "../../guest-init/protocol/codes.ts";
import type { GuestConfig } from "../../guest-init/protocol/configure.ts";

/** The frames between an earlier podnetd and its agent. */
export interface RecordedFrames {
  /** What the guest was asked to be. */
  readonly config: GuestConfig;
  readonly frames: readonly RecordedFrame[];
}

export interface RecordedFrame {
  readonly from: "host" | "agent";
  readonly code: number;
  readonly payload: Buffer;
}

/** Reads test/fixtures/agent-frames-N.json. */
export function recordedFrames(version: number): RecordedFrames {
  const file = join(import.meta.dirname, `../fixtures/agent-frames-${version}.json`);
  const { config, lines } = JSON.parse(readFileSync(file, "utf8")) as {
    readonly config: GuestConfig;
    readonly lines: readonly (Omit<RecordedFrame, "payload"> & { readonly payload: string })[];
  };
  const frames = lines.map((line) => ({ ...line, payload: Buffer.from(line.payload, "latin1") }));
  return { config, frames };
}

/** A frame of the tty channel; no data ends the stream. */
export interface RecordedStream {
  readonly from: "host" | "agent";
  readonly stream: number;
  readonly data: Buffer;
}

/** What a session of then came to: its output, and its exit code at the end. */
export type Outcome =
  | { readonly kind: "stdout" | "stderr"; readonly data: string }
  | { readonly kind: "exit"; readonly code: number };

/**
 * Processes of an earlier podnetd, and the power-off; without NEXTs, which say how much was read at
 * a time.
 */
export interface RecordedProcesses {
  readonly outcomes: Readonly<Record<"input" | "signal" | "terminal", readonly Outcome[]>>;
  readonly lines: readonly (RecordedFrame | RecordedStream)[];
}

/** Reads test/fixtures/agent-frames-1b.json. */
export function recordedProcesses(): RecordedProcesses {
  const file = join(import.meta.dirname, "../fixtures/agent-frames-1b.json");
  type Line = { readonly from: "host" | "agent" } & (
    | { readonly code: number; readonly payload: string }
    | { readonly stream: number; readonly data: string }
  );
  const { outcomes, lines } = JSON.parse(readFileSync(file, "utf8")) as {
    readonly outcomes: RecordedProcesses["outcomes"];
    readonly lines: readonly Line[];
  };
  return {
    outcomes,
    lines: lines
      .map((line) =>
        "code" in line
          ? { ...line, payload: Buffer.from(line.payload, "latin1") }
          : { ...line, data: Buffer.from(line.data, "latin1") },
      )
      .filter((line) => !("code" in line && line.code === command.next)),
  };
}
