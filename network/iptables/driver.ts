import type { Change } from "../change.ts";
import type { Fragment, NetworkFragment, PodFragment } from "../desired.ts";
import type { FirewallDriver, FirewallFacts } from "../firewall/driver.ts";
import type { Memory } from "../memory.ts";
import type { Owner } from "../ownership.ts";
import {
  diffFirewallRemoval,
  diffNetworkFirewall,
  type FirewallContext,
  variantInUse,
} from "./diff-owners.ts";
import { firewallFingerprint, observeFirewall } from "./firewall.ts";
import { networkRules, sharedRules } from "./network-rules.ts";
import type { IptablesPrograms } from "./programs.ts";
import { ruleText } from "./rule.ts";
import type { Variant } from "./variant.ts";

export interface IptablesOptions {
  /** `iptables_variant`; `off` (`disable_iptables`) runs no firewall command at all. */
  readonly configured: "auto" | Variant | "off";
  /** The ancestors' chain. */
  readonly chain: string;
  readonly memory: Memory;
  readonly programs: IptablesPrograms;
}

/** The ancestors' chains, made with iptables. */
export class IptablesDriver implements FirewallDriver {
  readonly #options: IptablesOptions;

  constructor(options: IptablesOptions) {
    this.#options = options;
  }

  async compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]> {
    const context = this.#context();
    if (!fragment.firewall || context === undefined) {
      const own = ({ kind, key }: Owner): boolean => kind === "network" && key === fragment.key;
      return this.compareRemoval(own, signal);
    }
    const { programs } = this.#options;
    const firewall = await observeFirewall(programs, signal, context.configured);
    return diffNetworkFirewall(fragment, firewall, context);
  }

  comparePod(_fragment: PodFragment, _signal: AbortSignal): Promise<Change[]> {
    return Promise.resolve([]);
  }

  async compareRemoval(doomed: (owner: Owner) => boolean, signal: AbortSignal): Promise<Change[]> {
    const context = this.#removalContext();
    if (context === undefined) return [];
    const { programs, chain } = this.#options;
    const firewall = await observeFirewall(programs, signal, context.configured);
    return diffFirewallRemoval(chain, firewall, context, doomed);
  }

  async fingerprint(signal: AbortSignal): Promise<string> {
    const { configured, programs } = this.#options;
    return configured === "off" ? "" : firewallFingerprint(programs, signal, configured);
  }

  async facts(signal: AbortSignal): Promise<FirewallFacts> {
    const context = this.#context();
    if (context === undefined) return "off";
    const { programs } = this.#options;
    return variantInUse(await observeFirewall(programs, signal, context.configured), context);
  }

  describe(fragment: Fragment): readonly string[] {
    if (fragment.kind === "pod" || !fragment.firewall || this.#options.configured === "off")
      return [];
    const rules = [...networkRules(fragment), ...sharedRules(fragment.chain)];
    return rules.map((rule) => `iptables ${ruleText(rule)}`);
  }

  #context(): FirewallContext | undefined {
    const { configured, memory } = this.#options;
    return configured === "off" ? undefined : { configured, memory };
  }

  /** Switched off, podnet runs no firewall command but to take away what it made before: its own memory tells. */
  #removalContext(): FirewallContext | undefined {
    const { memory } = this.#options;
    const made = memory.value.chains.length > 0;
    return this.#context() ?? (made ? { configured: "auto", memory } : undefined);
  }
}
