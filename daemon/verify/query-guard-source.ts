import { PodnetError } from "../../core/errors.ts";
import { findProgram, run } from "../../linux/processes/command.ts";
import { runSource } from "./run-source.ts";
import {
  type GuardReport,
  parseGuardReport,
  parseServicesReport,
  type ServicesReport,
} from "./source-reports.ts";

/** Longest that a listing may take, milliseconds. */
const listMs = 10_000;

/**
 * What the tables of the guard and of policies have, as `nft` lists them; undefined where that
 * program is not installed. Throws as `runSource` does.
 */
export async function hearGuard(signal: AbortSignal): Promise<GuardReport | undefined> {
  if (findProgram("nft") === undefined) return undefined;
  const tables = await Promise.all([
    listed("bridge podnet", signal),
    listed("inet podnet_policy", signal),
  ]);
  const said = await runSource("rules-source.ts", ["guard"], signal, { stdin: tables.join("\n") });
  return parseGuardReport(said);
}

/** Where services lead, as `nft` lists their table; undefined and throwing as `hearGuard`. */
export async function hearServices(signal: AbortSignal): Promise<ServicesReport | undefined> {
  if (findProgram("nft") === undefined) return undefined;
  const stdin = await listed("inet podnet_services", signal);
  return parseServicesReport(await runSource("rules-source.ts", ["services"], signal, { stdin }));
}

/** A table as JSON; empty where it does not exist. Throws `COMMAND_FAILED`. */
export async function listed(table: string, signal: AbortSignal): Promise<string> {
  const argv = ["nft", "-j", "list", "table", ...table.split(" ")] as [string, ...string[]];
  const { stdout, stderr, exitCode } = await run(argv, {
    timeoutMs: listMs,
    signal,
    okCodes: [0, 1],
  });
  if (exitCode === 0) return stdout.trim();
  if (stderr.includes("No such file or directory")) return "";
  throw new PodnetError("COMMAND_FAILED", `nft cannot list table ${table}`, {
    hint: `Run \`nft list table ${table}\` as root to see why`,
    details: { argv: argv.join(" "), exitCode, stderr },
  });
}
