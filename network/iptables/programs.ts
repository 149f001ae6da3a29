import { readFileSync, realpathSync } from "node:fs";
import { findProgram, run } from "../../linux/command.ts";
import { nftablesGeneration } from "../../linux/nftables-generation.ts";
import type { Variant } from "./variant.ts";

/** The programs of iptables, by what they read and print. `save` and `restore` throw as `run` does. */
export interface IptablesPrograms {
  /** What `iptables-save` of this variant prints. */
  save(variant: Variant, signal: AbortSignal): Promise<string>;
  /** Gives `iptables-restore --noflush` its input: all of it is applied, or nothing. */
  restore(variant: Variant, input: string, signal: AbortSignal): Promise<void>;
  /** Names of the tables that iptables-legacy has, a line each. Throws what `node:fs` throws. */
  legacyTables(): string;
  /** What the plain command `iptables` is on this host. */
  systemDefault(): Variant;
  /** How many changes of rules nf_tables has seen; undefined, or no such function, when nothing tells. */
  generation?(): number | undefined;
}

/** Seconds to wait for other users of iptables-legacy, which holds one lock for the whole host. */
const lockWaitSeconds = 10;

/** The installed ones. */
export const iptables: IptablesPrograms = {
  save: async (variant, signal) => (await run([`iptables-${variant}-save`], { signal })).stdout,

  restore: async (variant, input, signal) => {
    const program = `iptables-${variant}-restore`;
    await run([program, "--noflush", `--wait=${lockWaitSeconds}`], { stdin: input, signal });
  },

  // The legacy kernel part makes a table as soon as somebody asks for it; only those that exist are read.
  legacyTables: () => readFileSync("/proc/self/net/ip_tables_names", "latin1"),

  // Debian's alternatives: /usr/sbin/iptables leads to xtables-nft-multi or xtables-legacy-multi.
  systemDefault: () => {
    const program = findProgram("iptables");
    return program !== undefined && realpathSync(program).includes("legacy") ? "legacy" : "nft";
  },

  generation: nftablesGeneration,
};
