import { type Family, familyOf } from "../../../core/address.ts";
import { isPodnetError } from "../../../core/errors.ts";
import type { Change } from "../../model/change.ts";
import {
  type Fragment,
  hasFamily,
  type NetworkFragment,
  type PluggedFragment,
} from "../../model/desired.ts";
import type { FirewallDriver, FirewallFacts } from "../driver.ts";
import type { Memory } from "../../kernel/memory.ts";
import { type OverlayRuled, sideOf } from "../../model/overlay.ts";
import { type Owner, parseOwner, publishedMark } from "../../model/ownership.ts";
import {
  diffFirewallRemoval,
  diffNetworkFirewall,
  diffOverlayFirewall,
  diffPodsFirewall,
  type FirewallContext,
  ownersOf,
  variantToWrite,
} from "./diff-owners.ts";
import { deviatingPods } from "./deviating.ts";
import { marksIn } from "./diff.ts";
import { firewallFingerprint, observeFirewall, type ObservedFirewall } from "./firewall.ts";
import { networkRules, sharedRules } from "./network-rules.ts";
import { overlayRules } from "./overlay-rules.ts";
import type { IptablesPrograms } from "../../kernel/iptables-programs.ts";
import { publishedRules } from "./published-rules.ts";
import { commentOf, type Rule, ruleText } from "./rule.ts";
import { splitWords } from "./save-format.ts";
import type { Variant } from "../../model/rules.ts";

export interface IptablesOptions {
  /** `iptables_variant`; `off` (`disable_iptables`) runs no firewall command at all. */
  readonly configured: "auto" | Variant | "off";
  /** The ancestors' chain. */
  readonly chain: string;
  readonly memory: Memory;
  readonly iptables: IptablesPrograms;
  readonly ip6tables: IptablesPrograms;
  /** Whether the host forwards IPv6. */
  readonly forwards6: () => boolean;
}

const families: readonly Family[] = [4, 6];

/** The ancestors' chains, made with iptables, and with ip6tables once there are IPv6 rules. */
export class IptablesDriver implements FirewallDriver {
  readonly #options: IptablesOptions;
  /** The marks of rules by family, as last seen, and of those written since. */
  readonly #seen = new Map<Family, Set<string>>();

  constructor(options: IptablesOptions) {
    this.#options = options;
  }

  async compareNetwork(fragment: NetworkFragment, signal: AbortSignal): Promise<Change[]> {
    const { configured } = this.#options;
    if (!fragment.firewall || configured === "off") {
      const own = ({ kind, key }: Owner): boolean => kind === "network" && key === fragment.key;
      return this.compareRemoval(own, signal);
    }
    return this.#compare(configured, hasFamily(fragment, 6), signal, (observed, context) =>
      diffNetworkFirewall(fragment, observed, context),
    );
  }

  async comparePod(fragment: PluggedFragment, signal: AbortSignal): Promise<Change[]> {
    return this.comparePods([fragment], signal);
  }

  async comparePods(fragments: readonly PluggedFragment[], signal: AbortSignal): Promise<Change[]> {
    const { configured, chain } = this.#options;
    if (configured === "off") return this.compareRemoval(ownersOf(fragments), signal);
    return this.#compare(configured, fragments.some(has6), signal, (observed, context) =>
      diffPodsFirewall(fragments, chain, observed, context),
    );
  }

  async deviating(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly PluggedFragment[]> {
    const { configured, chain } = this.#options;
    if (configured === "off" || fragments.length === 0) return [];
    const seen = await this.#observe(configured, fragments.some(has6), signal);
    const found = new Set(
      seen.flatMap((observed) =>
        deviatingPods(fragments, chain, observed, this.#context(configured, observed.family)),
      ),
    );
    return fragments.filter((fragment) => found.has(fragment));
  }

  /** Of these pods, those that have rules, by one look. */
  async ruled(
    fragments: readonly PluggedFragment[],
    signal: AbortSignal,
  ): Promise<readonly PluggedFragment[]> {
    const { configured } = this.#options;
    if (configured === "off" || fragments.length === 0) return [];
    await this.#observe(configured, false, signal);
    return fragments.filter((fragment) => this.hasSeen(publishedMark(fragment)));
  }

  /** Whether rules with this mark were seen by the last look, or written since. */
  hasSeen(mark: string): boolean {
    return [...this.#seen.values()].some((marks) => marks.has(mark));
  }

  /** Whether such an owner may have rules: none was seen of it, and all were looked at. */
  mayHave(removed: (owner: Owner) => boolean): boolean {
    const { memory } = this.#options;
    const has6 = memory.chains(6).any || memory.rules6 !== "known";
    if (!this.#seen.has(4) || (has6 && !this.#seen.has(6))) return true;
    return [...this.#seen.values()].some((marks) =>
      [...marks].some((mark) => {
        const owner = parseOwner(mark);
        return owner !== undefined && removed(owner);
      }),
    );
  }

  async compareOverlay(overlay: OverlayRuled, signal: AbortSignal): Promise<Change[]> {
    const { configured, chain } = this.#options;
    if (configured === "off") {
      const own = ({ kind, key }: Owner): boolean => kind === "overlay" && key === overlay.name;
      return this.compareRemoval(own, signal);
    }
    const has6 = sideOf(overlay, 6) !== undefined;
    return this.#compare(configured, has6, signal, (observed, context) =>
      diffOverlayFirewall(overlay, chain, observed, context),
    );
  }

  /**
   * Returns no changes: the guard has the set of hosts, and one rule of the overlay's chain accepts
   * packets that the guard marked.
   */
  compareSenders(): Promise<Change[]> {
    return Promise.resolve([]);
  }

  async compareRemoval(removed: (owner: Owner) => boolean, signal: AbortSignal): Promise<Change[]> {
    const { configured, chain, memory } = this.#options;
    // When switched off, podnet runs firewall commands only to remove what it made before,
    // according to its own records.
    if (configured === "off" && !families.some((family) => memory.chains(family).any)) return [];
    const sought = configured === "off" ? "auto" : configured;
    return this.#compare(sought, false, signal, (observed, context) =>
      diffFirewallRemoval(chain, observed, context, removed),
    );
  }

  async fingerprint(signal: AbortSignal): Promise<string> {
    const { configured } = this.#options;
    if (configured === "off") return "";
    const { iptables, ip6tables, memory } = this.#options;
    const used = memory.chains(6).any ? [iptables, ip6tables] : [iptables];
    const seen = used.map((programs) => firewallFingerprint(programs, signal, configured));
    return (await Promise.all(seen)).join("\n");
  }

  async facts(signal: AbortSignal): Promise<FirewallFacts> {
    const { configured, iptables } = this.#options;
    if (configured === "off") return "off";
    const observed = await observeFirewall(iptables, signal, configured);
    return variantToWrite(observed, this.#context(configured, 4));
  }

  describeOverlay(overlay: OverlayRuled): readonly string[] {
    if (this.#options.configured === "off") return [];
    return families.flatMap((family) =>
      overlayRules(overlay, family).map((rule) => `${commandOf(family)} ${ruleText(rule)}`),
    );
  }

  describe(fragment: Fragment): readonly string[] {
    const { configured, chain } = this.#options;
    if (configured === "off") return [];
    return families.flatMap((family) => {
      const rules =
        fragment.kind === "network"
          ? rulesOf(fragment, family)
          : publishedRules(fragment, chain, family);
      return rules.map((rule) => `${commandOf(family)} ${ruleText(rule)}`);
    });
  }

  describeChange(before: PluggedFragment, after: PluggedFragment): readonly string[] {
    const [had, has] = [this.describe(before), this.describe(after)];
    return [
      ...had.filter((line) => !has.includes(line)).map((line) => line.replace(" -A ", " -D ")),
      ...has.filter((line) => !had.includes(line)),
    ];
  }

  /** Looks at each family that has to do with it, and gives the changes in one list. */
  async #compare(
    configured: "auto" | Variant,
    wants6: boolean,
    signal: AbortSignal,
    diff: (observed: ObservedFirewall, context: FirewallContext) => Change[],
  ): Promise<Change[]> {
    return (await this.#observe(configured, wants6, signal)).flatMap((observed) => {
      const changes = diff(observed, this.#context(configured, observed.family));
      for (const change of changes)
        for (const line of change.kind === "iptables" ? change.lines : []) {
          const mark = line.startsWith("-I ") ? commentOf(splitWords(line)) : undefined;
          if (mark !== undefined) this.#seen.get(observed.family)?.add(mark);
        }
      return changes;
    });
  }

  /**
   * IPv6 is looked at only if there is something to make, if the records say that something was
   * made, or if something may have been made before the records began.
   */
  async #observe(
    configured: "auto" | Variant,
    wants6: boolean,
    signal: AbortSignal,
  ): Promise<readonly ObservedFirewall[]> {
    const { iptables, ip6tables, memory } = this.#options;
    const look = (programs: IptablesPrograms): Promise<ObservedFirewall> =>
      this.#look(programs, configured, signal);
    if (wants6 || memory.chains(6).any) return Promise.all([look(iptables), look(ip6tables)]);
    const four = await look(iptables);
    if (memory.rules6 === undefined)
      memory.judgeRules6(this.#mayHaveForgotten6() ? "suspected" : "known");
    if (memory.rules6 === "known") return [four];
    try {
      return [four, await look(ip6tables)];
    } catch (thrown) {
      // IPv4 does not depend on programs for IPv6 that nothing is known to need.
      if (isPodnetError(thrown, "FIREWALL_FAILED")) return [four];
      throw thrown;
    }
  }

  /**
   * Whether an earlier podnetd may have left rules of IPv6: it left rules of IPv4 that are not
   * recorded, or the host forwards IPv6, which a podnetd that lost its records leaves on.
   */
  #mayHaveForgotten6(): boolean {
    const { memory, forwards6 } = this.#options;
    const hasMarks4 = [...(this.#seen.get(4) ?? [])].some((mark) => parseOwner(mark) !== undefined);
    return forwards6() || (hasMarks4 && !memory.chains(4).any);
  }

  async #look(
    programs: IptablesPrograms,
    configured: "auto" | Variant,
    signal: AbortSignal,
  ): Promise<ObservedFirewall> {
    const observed = await observeFirewall(programs, signal, configured);
    const marks = Object.values(observed.saved).flatMap((saved) => [...marksIn(saved)]);
    this.#seen.set(observed.family, new Set(marks));
    const { memory } = this.#options;
    if (observed.family === 6) {
      if (marks.every((mark) => parseOwner(mark) === undefined)) memory.judgeRules6("known");
      else if (!memory.chains(6).any) memory.judgeRules6("suspected");
    }
    return observed;
  }

  #context(configured: "auto" | Variant, family: Family): FirewallContext {
    return { configured, memory: this.#options.memory.chains(family) };
  }
}

const has6 = ({ published = [], translated = [], loopback = [] }: PluggedFragment): boolean =>
  [
    ...published.map(({ podIp }) => podIp),
    ...translated,
    ...loopback.map(({ hostIp }) => hostIp),
  ].some((ip) => familyOf(ip) === 6);

const commandOf = (family: Family): string => (family === 4 ? "iptables" : "ip6tables");

const rulesOf = (fragment: NetworkFragment, family: Family): Rule[] =>
  fragment.firewall && hasFamily(fragment, family)
    ? [...networkRules(fragment, family), ...sharedRules(fragment.chain, family)]
    : [];
