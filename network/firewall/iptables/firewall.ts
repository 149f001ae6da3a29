import type { Family } from "../../../core/address.ts";
import { isPodnetError, PodnetError } from "../../../core/errors.ts";
import { restoreText } from "./diff.ts";
import type { IptablesEdit, Variant } from "../../model/rules.ts";
import { type IptablesPrograms, variantName } from "../../kernel/iptables-programs.ts";
import { parseSave, type SavedTables } from "./save-format.ts";

/** The host's present firewall rules of one family, in both variants. */
export interface ObservedFirewall {
  readonly family: Family;
  readonly saved: Readonly<Record<Variant, SavedTables>>;
  readonly systemDefault: Variant;
  /** Tables that iptables-nft cannot show, because a rule made with `nft` has no iptables form. */
  readonly incompatible: readonly string[];
}

/**
 * Reads all tables of both variants. Throws `FIREWALL_FAILED`, also when legacy's are not for us to
 * read, unless `configured` says that they do not matter.
 */
export async function observeFirewall(
  programs: IptablesPrograms,
  signal: AbortSignal,
  configured: "auto" | Variant = "auto",
): Promise<ObservedFirewall> {
  const [nft, legacy] = await Promise.all([
    save(programs, "nft", signal),
    saveLegacy(programs, signal, configured === "nft"),
  ]);
  const incompatible = [...nft.matchAll(/^# Table [`'](\w+)' is incompatible/gm)];
  return {
    family: programs.family,
    saved: { nft: parseSave(nft), legacy: parseSave(legacy) },
    systemDefault: programs.systemDefault(),
    incompatible: incompatible.map(([, table]) => table as string),
  };
}

/**
 * A text that changes whenever a rule may have changed. For iptables-nft it contains the number of
 * nf_tables commits, if the kernel reports it; the rules of legacy have no such number and are
 * listed, if there are any. Throws `FIREWALL_FAILED`.
 */
export async function firewallFingerprint(
  programs: IptablesPrograms,
  signal: AbortSignal,
  configured: "auto" | Variant,
): Promise<string> {
  const nft = programs.generation?.() ?? (await save(programs, "nft", signal));
  const legacy = await saveLegacy(programs, signal, configured === "nft");
  return `${nft}\n${legacy}`.replaceAll(/^#.*\n/gm, "").replaceAll(/\[\d+:\d+\]/g, "");
}

/**
 * Commits one table. iptables-restore applies all of it or nothing.
 * Throws `FIREWALL_FAILED` with what iptables said.
 */
export async function commitTable(
  programs: IptablesPrograms,
  variant: Variant,
  edit: IptablesEdit,
  signal: AbortSignal,
): Promise<void> {
  try {
    await programs.restore(variant, restoreText(edit), signal);
  } catch (error) {
    throw firewallError(
      error,
      `Cannot change table "${edit.table}" of ${variantName(programs.family, variant)}`,
    );
  }
}

/** All tables that the legacy variant may have. */
const legacyTables = ["filter", "nat", "mangle", "raw", "security"] as const;

async function saveLegacy(
  programs: IptablesPrograms,
  signal: AbortSignal,
  dispensable: boolean,
): Promise<string> {
  let tables = "";
  try {
    tables = programs.legacyTables();
  } catch (cause) {
    // ENOENT: the kernel has no ip_tables, so nothing can be in it. EACCES: the file is root's
    // (mode 0440).
    if ((cause as NodeJS.ErrnoException).code !== "ENOENT" && !dispensable)
      return await saveEachLegacy(programs, signal);
  }
  return tables.trim() === "" ? "" : save(programs, "legacy", signal);
}

/**
 * Only root can see which tables exist; their rules can be read with CAP_NET_ADMIN and CAP_NET_RAW.
 * If a requested table does not exist, the kernel makes an empty one.
 */
async function saveEachLegacy(programs: IptablesPrograms, signal: AbortSignal): Promise<string> {
  try {
    const saved = legacyTables.map((table) =>
      programs.save("legacy", signal, table).catch(noSuchTable),
    );
    return (await Promise.all(saved)).join("");
  } catch (cause) {
    if (isPodnetError(cause, "CANCELLED")) throw cause;
    throw new PodnetError(
      "FIREWALL_FAILED",
      `What rules ${variantName(programs.family, "legacy")} has cannot be seen`,
      {
        field: "iptables_variant",
        hint: 'Give podnetd CAP_NET_RAW alongside CAP_NET_ADMIN; or set iptables_variant = "nft" if nothing uses iptables-legacy here',
        cause,
      },
    );
  }
}

function noSuchTable(thrown: unknown): string {
  if (isPodnetError(thrown) && /does not exist/.test(String(thrown.details["stderr"]))) return "";
  throw thrown;
}

async function save(
  programs: IptablesPrograms,
  variant: Variant,
  signal: AbortSignal,
): Promise<string> {
  try {
    return await programs.save(variant, signal);
  } catch (error) {
    throw firewallError(error, `Cannot read the rules of ${variantName(programs.family, variant)}`);
  }
}

function firewallError(error: unknown, message: string): PodnetError {
  if (isPodnetError(error, "CANCELLED")) return error;
  const cause = isPodnetError(error) ? error : undefined;
  const said = String(cause?.details["stderr"] ?? "").trim();
  return new PodnetError(
    "FIREWALL_FAILED",
    said === "" ? message : `${message}: ${lastLine(said)}`,
    {
      hint: hintFor(said, cause),
      details: cause?.details ?? {},
      cause: error,
    },
  );
}

const lastLine = (text: string): string => text.split("\n").at(-1)?.slice(0, 200) ?? "";

function hintFor(said: string, cause: PodnetError | undefined): string {
  if (cause?.details["errno"] === "ENOENT") return "Install iptables 1.8 or newer";
  // The program could not be started, so it has printed nothing.
  if (cause?.details["errno"] !== undefined && cause.hint !== undefined) return cause.hint;
  if (said.includes("lock file"))
    return "Let podnetd's user write to the lock of iptables-legacy, as root before podnetd starts: daemon/share-xtables-lock podnet";
  if (said.includes("xtables lock"))
    return "Another program holds the lock of iptables; look for one that hangs";
  if (said.includes("Permission denied"))
    return "Run podnetd as root, or with CAP_NET_ADMIN and iptables-nft";
  if (said.includes("incompatible"))
    return 'Rules made with nft are in this table; set iptables_variant = "legacy" or move them to a table of their own';
  return "See what iptables said in the details, or set disable_iptables = true and make the rules yourself";
}
