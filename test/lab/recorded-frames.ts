import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { GuestConfig } from "../../guest-init/protocol/configure.ts";

/** A conversation between an earlier podnetd and its agent. */
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
