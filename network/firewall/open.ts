import { isPodnetError } from "../../core/errors.ts";
import type { Change } from "../model/change.ts";
import { IptablesDriver } from "./iptables/driver.ts";
import { type Variant, mainTableName } from "../model/rules.ts";
import type { HostKernel } from "../kernel/kernel.ts";
import type { Memory } from "../kernel/memory.ts";
import { MappedDriver, mapDriver } from "./mapped.ts";
import { NftablesDriver } from "./nftables/driver.ts";
import { guardTables } from "./nftables/guard-tables.ts";
import { learnTable } from "./nftables/learn-table.ts";
import { policedPortsTable } from "./nftables/policed-ports.ts";
import { policyTable } from "./nftables/policy-table.ts";
import { publishedTable } from "./nftables/published-table.ts";
import { serviceTable } from "./nftables/service-table.ts";
import { sendersTable } from "./nftables/senders-table.ts";
import { entriesOf, objectOf, textOf } from "./nftables/listing.ts";
import { Ledger, RuleTable } from "./nftables/rule-table.ts";
import type { FirewallDriver } from "./driver.ts";
import { Guard, guarded } from "./guarded.ts";
import { policed, type PolicyOf } from "./policed.ts";
import { serviced, type ServicedDriver } from "./serviced.ts";

/** The drivers for the host's rules. */
export type FirewallName = "iptables" | "nftables";

export interface FirewallOptions {
  readonly kernel: HostKernel;
  readonly memory: Memory;
  readonly firewall: FirewallName;
  readonly iptables: "auto" | Variant | "off";
  readonly chain: string;
  /** The seed of bridges' MACs. */
  readonly hostSeed: string;
  readonly policyOf: PolicyOf;
  readonly relayPort: number;
  /** Whether the host forwards IPv6. */
  readonly forwards6: () => boolean;
}

export interface Firewall {
  readonly firewall: ServicedDriver;
  /** Looks for what the other driver left when it was configured, and takes all of it away. */
  readonly formerRules: (signal: AbortSignal) => Promise<Change[]>;
  /** Whether the other driver's rules are in force, as far as is remembered. */
  readonly switching: () => boolean;
  readonly ruleTable: RuleTable;
  readonly guardTables: readonly RuleTable[];
  /** Why parts of the guard are not in force, a line each. */
  readonly guardLacking: () => readonly string[];
  /** What the guard refused of ports. */
  readonly refusals: Guard["refusals"];
}

/**
 * Opens the configured driver, and the one that removes the other driver's rules. Changes nothing
 * by itself.
 */
export function openFirewall(options: FirewallOptions): Firewall {
  const { kernel, memory, firewall, iptables, chain, hostSeed, policyOf, relayPort } = options;
  const ledger = new Ledger(kernel.nftables);
  const ruleTable = new RuleTable(ledger, memory);
  const nftables = (configured: boolean): FirewallDriver =>
    new NftablesDriver({ table: ruleTable, memory, configured });
  const off = iptables === "off";
  const tables = [...guardTables, sendersTable].map(
    (model) => new RuleTable(ledger, memory, model),
  );
  const guard = new Guard(tables, memory, { off, hostSeed });
  const published = new RuleTable(ledger, memory, publishedTable);
  const policies = {
    flows: new RuleTable(ledger, memory, policyTable),
    ports: new RuleTable(ledger, memory, policedPortsTable),
    learn: new RuleTable(ledger, memory, learnTable),
  };
  const services = new RuleTable(ledger, memory, serviceTable);
  const guarding: Pick<Firewall, "guardTables" | "guardLacking" | "refusals"> = {
    guardTables: [...tables, ...Object.values(policies), published, services],
    guardLacking: () => [
      ...guard.lacking,
      ...[policies.ports.lacking, policies.flows.reduced].flatMap((why) => why ?? []),
    ],
    refusals: (links) => guard.refusals(links),
  };
  const restricted = (driver: FirewallDriver): ServicedDriver => {
    const policing = { driver: guarded(driver, guard), tables: policies };
    return serviced({
      driver: policed({ ...policing, memory, policyOf, relayPort }),
      table: services,
      memory,
    });
  };
  if (firewall === "nftables" && !off) {
    return {
      firewall: restricted(nftables(true)),
      formerRules: async (signal) => [
        ...(await formerChains(options, ledger, signal)),
        ...(await mapDriver(published, memory).compareRemoval(everybody, signal)),
      ],
      switching: () => madeChains(memory),
      ruleTable,
      ...guarding,
    };
  }
  const former = nftables(false);
  const { forwards6 } = options;
  const chains = new IptablesDriver({
    ...kernel,
    configured: iptables,
    chain,
    memory,
    forwards6,
  });
  const mapped = new MappedDriver({ chains, table: published, memory, off });
  return {
    firewall: restricted(mapped),
    // When switched off, podnet only looks for objects that its records name.
    formerRules: async (signal) => [
      ...(off && !memory.madeTable(mainTableName)
        ? []
        : await former.compareRemoval(everybody, signal)),
      ...(await mapped.compareFormer(signal)),
    ],
    switching: () => !off && memory.madeTable(mainTableName),
    ruleTable,
    ...guarding,
  };
}

const madeChains = (memory: Memory): boolean => memory.chains(4).any || memory.chains(6).any;

const everybody = (): boolean => true;

/**
 * If the records of chains were lost, podnet looks only in iptables-nft, if that is installed and
 * has any table: its programs take some 20 ms of a start.
 */
async function formerChains(
  { kernel, memory, iptables, chain, forwards6 }: FirewallOptions,
  ledger: Ledger,
  signal: AbortSignal,
): Promise<Change[]> {
  const remembered = madeChains(memory);
  if (!remembered && !(await hasIpTables(ledger))) return [];
  const configured = remembered ? iptables : "nft";
  const former = new IptablesDriver({ ...kernel, configured, chain, memory, forwards6 });
  try {
    return await former.compareRemoval(everybody, signal);
  } catch (error) {
    if (remembered || !isPodnetError(error, "FIREWALL_FAILED")) throw error;
    return [];
  }
}

const ipFamilies = ["ip", "ip6"];

/** Whether nf_tables has a table of the families in which iptables-nft has its own. */
async function hasIpTables(ledger: Ledger): Promise<boolean> {
  try {
    const tables = entriesOf(await ledger.open().list("list tables", "list tables"));
    return tables.some(({ table }) => ipFamilies.includes(textOf(objectOf(table)?.["family"])));
  } catch (error) {
    if (isPodnetError(error, "FIREWALL_FAILED")) return true;
    throw error;
  }
}
