import { familyOf } from "../../core/address.ts";
import { run } from "../../linux/processes/command.ts";
import type { FirewallFacts } from "../../network/firewall/driver.ts";
import { rulesOf } from "../pods/interfaces/pod-ports.ts";
import type { PodPlan } from "../pods/store/pod-plan.ts";
import type { Check } from "./check.ts";
import { compareRules, compareSockets, type RulesSource } from "./compare-ports.ts";
import { listed } from "./query-guard-source.ts";
import { runSource } from "./run-source.ts";
import { parseRulesReport, parseSocketsReport, type RulesReport } from "./source-reports.ts";

/** Longest a program may take to print all rules, milliseconds. */
const listMs = 10_000;

/**
 * Checks a pod's published ports, in the rules and among the sockets. Throws as `runSource` does.
 */
export async function hearPorts(
  plan: PodPlan,
  firewall: FirewallFacts,
  signal: AbortSignal,
): Promise<Check[]> {
  const { published = [] } = plan;
  if (published.length === 0) return [];
  const ruled = rulesOf(plan).published ?? [];
  const [rules, sockets] = await Promise.all([
    hearRules(ruled.length === 0 ? "off" : firewall, signal, {
      four: ruled.some(({ podIp }) => familyOf(podIp) === 4),
      six: ruled.some(({ podIp }) => familyOf(podIp) === 6),
    }),
    runSource("sockets-source.ts", [`${process.pid}`], signal),
  ]);
  return [
    ...(rules === undefined ? [] : compareRules(ruled, rules.source, rules.report)),
    ...compareSockets(published, parseSocketsReport(sockets)),
  ];
}

interface Heard {
  readonly source: RulesSource;
  readonly report: RulesReport;
}

/** The content of the current rules; undefined where podnet makes none. */
export async function hearRules(
  firewall: FirewallFacts,
  signal: AbortSignal,
  of: { readonly four: boolean; readonly six: boolean },
): Promise<Heard | undefined> {
  if (firewall === "off") return undefined;
  if (firewall === "nftables") {
    const report = await understood("nftables", await listed("inet podnet", signal), signal);
    return { source: "nft", report };
  }
  const variants = firewall === "ambiguous" ? ["nft", "legacy"] : [firewall];
  const programs = variants.flatMap((variant) => [
    ...(of.four ? [`iptables-${variant}-save`] : []),
    ...(of.six ? [`ip6tables-${variant}-save`] : []),
  ]);
  const heard = await Promise.all(
    programs.map(async (program) => {
      const { stdout } = await run([program], { timeoutMs: listMs, signal });
      return understood("iptables", stdout, signal);
    }),
  );
  return {
    source: "iptables-save",
    report: {
      translations: heard.flatMap(({ translations }) => translations),
      opened: heard.flatMap(({ opened }) => opened),
      hairpins: heard.flatMap(({ hairpins }) => hairpins),
    },
  };
}

const understood = async (
  kind: "iptables" | "nftables",
  text: string,
  signal: AbortSignal,
): Promise<RulesReport> =>
  parseRulesReport(await runSource("rules-source.ts", [kind], signal, { stdin: text }));
