import { PodnetError, toPodnetError } from "../../core/errors.ts";
import { findProgram } from "../../linux/processes/command.ts";
import { requireNftables } from "../../linux/nftables/libnftables.ts";
import type { FirewallName } from "../../network/firewall/open.ts";
import type { Config } from "../config/config.ts";
import type { Database } from "../store/database.ts";
import { getMeta, setMeta } from "../store/meta.ts";

/** Throws `PREFLIGHT_FAILED` for a firewall that the host does not have. */
type Require = (firewall: FirewallName) => void;

/**
 * The configuration with the firewall driver decided. `auto` takes iptables where the host has it,
 * and nftables otherwise. What is in use is recorded, and `auto` stays with it, whatever is
 * installed later: the other driver's rules stand at another place, where the host's own rules meet
 * them differently. Throws `PREFLIGHT_FAILED` when the host lacks the driver.
 */
export function withFirewall(
  config: Config,
  db: Database,
  required: Require = requireFirewall,
): Config {
  if (config.disableIptables) return config;
  const before = recorded(db);
  const firewall = config.firewall === "auto" ? (before ?? firstChoice(required)) : config.firewall;
  try {
    required(firewall);
  } catch (thrown) {
    if (config.firewall !== "auto") throw thrown;
    throw keptChoice(firewall, thrown);
  }
  if (firewall !== before)
    db.transaction(() => setMeta(db, "firewall", firewall), undefined, "always", "essential");
  return { ...config, firewall };
}

/** The driver of the last start. Before there was a record, only iptables could go unnamed. */
function recorded(db: Database): FirewallName | undefined {
  const value = getMeta(db, "firewall");
  if (value === "iptables" || value === "nftables") return value;
  return getMeta(db, "network_memory") === undefined ? undefined : "iptables";
}

function firstChoice(required: Require): FirewallName {
  try {
    required("iptables");
    return "iptables";
  } catch (thrown) {
    try {
      required("nftables");
      return "nftables";
    } catch {
      throw thrown;
    }
  }
}

function keptChoice(firewall: FirewallName, thrown: unknown): PodnetError {
  const { message, hint, cause } = toPodnetError(thrown);
  const other = firewall === "iptables" ? "nftables" : "iptables";
  return new PodnetError("PREFLIGHT_FAILED", `${message}, and podnetd used it before`, {
    field: "firewall",
    hint: `${hint ?? "Install it"}. To change to ${other}, set firewall = "${other}"`,
    cause,
  });
}

function requireFirewall(firewall: FirewallName): void {
  if (firewall === "nftables") {
    try {
      requireNftables();
      return;
    } catch (cause) {
      const { message, hint = "" } = toPodnetError(cause);
      throw new PodnetError("PREFLIGHT_FAILED", message, { field: "firewall", hint, cause });
    }
  }
  if (findProgram("iptables-restore") !== undefined) return;
  throw new PodnetError("PREFLIGHT_FAILED", "iptables is not installed", {
    field: "firewall",
    hint: "Install it (apt-get install iptables), or set disable_iptables to do without NAT",
  });
}
