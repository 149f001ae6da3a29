import { type Family, familyOf } from "../../core/address.ts";
import { findProgram, run } from "../../linux/processes/command.ts";
import type { FirewallFacts } from "../../network/firewall/driver.ts";
import { rulesOf } from "../pods/interfaces/pod-ports.ts";
import type { PodPlan } from "../pods/store/pod-plan.ts";
import type { Check } from "./check.ts";
import { compareRules, compareSockets, familyText, type RulesSource } from "./compare-ports.ts";
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
  // What is published stands in a table of nftables; in the chains where the host can have none.
  if (findProgram("nft") === undefined) return undefined;
  const table = await listed("inet podnet_published", signal);
  const saved = async (command: string): Promise<readonly RulesReport[]> => {
    const { stdout } = await run([`${command}-${firewall}-save`], { timeoutMs: listMs, signal });
    return [await understood("iptables", stdout, signal)];
  };
  const [mapped, four, six] = await Promise.all([
    understood("nftables", table, signal),
    of.four ? saved("iptables") : [],
    of.six ? saved("ip6tables") : [],
  ]);
  const chains = [...four, ...six];
  const all = [mapped, ...chains];
  return {
    source: table === "" ? "iptables-save" : "nft",
    report: {
      translations: all.flatMap(({ translations }) => translations),
      opened: [
        ...letIn(mapped, 4, four),
        ...letIn(mapped, 6, six),
        ...chains.flatMap(({ opened }) => opened),
      ],
      hairpins: all.flatMap(({ hairpins }) => hairpins),
      accepted: [],
    },
  };
}

/** The ports whose packets are marked, as far as the chains of their family accept the mark. */
const letIn = (
  { opened }: RulesReport,
  family: Family,
  chains: readonly RulesReport[],
): RulesReport["opened"] =>
  opened
    .filter(({ podIp }) => familyText(podIp) === `${family}`)
    .flatMap(({ mark, ...port }) =>
      chains
        .flatMap(({ accepted }) => accepted)
        .filter((by) => by.mark === mark)
        .map(({ bridge }) => (bridge === undefined ? port : { ...port, bridge })),
    );

const understood = async (
  kind: "iptables" | "nftables",
  text: string,
  signal: AbortSignal,
): Promise<RulesReport> =>
  parseRulesReport(await runSource("rules-source.ts", [kind], signal, { stdin: text }));
