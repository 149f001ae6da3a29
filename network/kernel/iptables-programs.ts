import { readFileSync, realpathSync } from "node:fs";
import type { Family } from "../../core/address.ts";
import { findProgram, run } from "../../linux/processes/command.ts";
import { nftablesGeneration } from "../../linux/nftables/nftables-generation.ts";
import type { Variant } from "../model/rules.ts";

/**
 * The programs of iptables, or of ip6tables, by their input and output. `save` and `restore` throw
 * as `run` does.
 */
export interface IptablesPrograms {
  readonly family: Family;
  /** The output of this variant's `iptables-save`, of one table if it is named. */
  save(variant: Variant, signal: AbortSignal, table?: string): Promise<string>;
  /**
   * Runs `iptables-restore --noflush` with this input, which is applied as a whole or not at all.
   */
  restore(variant: Variant, input: string, signal: AbortSignal): Promise<void>;
  /** The names of the legacy variant's tables, a line each. Throws the errors of `node:fs`. */
  legacyTables(): string;
  /** The variant of the plain command on this host. */
  systemDefault(): Variant;
  /**
   * The number of changes of rules in nf_tables; undefined, or no such function, if it is not
   * known.
   */
  generation?(): number | undefined;
}

/** Seconds to wait for other users of iptables-legacy, which holds one lock for the whole host. */
const lockWaitSeconds = 10;

/** The command and its part of the kernel, by family. */
const names = {
  4: { command: "iptables", tables: "ip_tables_names" },
  6: { command: "ip6tables", tables: "ip6_tables_names" },
} as const;

/** The usual name of a variant of a family: `iptables-nft`, `ip6tables-legacy`. */
export const variantName = (family: Family, variant: Variant): string =>
  `${names[family].command}-${variant}`;

/** The installed ones of a family. */
export function installedPrograms(family: Family): IptablesPrograms {
  const { command, tables } = names[family];
  return {
    family,

    save: async (variant, signal, table) => {
      const which = table === undefined ? [] : ["-t", table];
      return (await run([`${variantName(family, variant)}-save`, ...which], { signal })).stdout;
    },

    restore: async (variant, input, signal) => {
      const program = `${variantName(family, variant)}-restore`;
      await run([program, "--noflush", `--wait=${lockWaitSeconds}`], { stdin: input, signal });
    },

    // Any request for a table makes the legacy kernel part create it; so only existing tables are
    // read.
    legacyTables: () => readFileSync(`/proc/self/net/${tables}`, "latin1"),

    // Debian's alternatives: /usr/sbin/iptables leads to xtables-nft-multi or xtables-legacy-multi.
    systemDefault: () => {
      const program = findProgram(command);
      return program !== undefined && realpathSync(program).includes("legacy") ? "legacy" : "nft";
    },

    // One number for all families.
    generation: nftablesGeneration,
  };
}
