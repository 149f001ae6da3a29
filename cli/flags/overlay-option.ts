import type { Command } from "commander";

export interface OverlayOptions {
  readonly overlay?: string;
}

/** Adds `--overlay`. */
export const addOverlayOption = (command: Command): Command =>
  command.option("--overlay <name>", "the overlay; not needed where there is one alone");
