import { type Family, familyOf } from "../../../core/address.ts";
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
  variantInUse,
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
  /**
   * The first objects removed from IPv4 are looked for in IPv6 as well, although none are recorded
   * there.
   */
  readonly lostMemory?: boolean;
}

const families: readonly Family[] = [4, 6];

/** The ancestors' chains, made with iptables, and with ip6tables once there are IPv6 rules. */
export class IptablesDriver implements FirewallDriver {
  readonly #options: IptablesOptions;
  #lostMemory: boolean;
  /** The marks of rules by family, as last seen, and of those written since. */
  readonly #seen = new Map<Family, Set<string>>();

  constructor(options: IptablesOptions) {
    this.#options = options;
    this.#lostMemory = options.lostMemory === true;
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
    const seen = await Promise.all(this.#observe(configured, fragments.some(has6), signal));
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
    await Promise.all(this.#observe(configured, false, signal));
    return fragments.filter((fragment) => this.hasSeen(publishedMark(fragment)));
  }

  /** Whether rules with this mark were seen by the last look, or written since. */
  hasSeen(mark: string): boolean {
    return [...this.#seen.values()].some((marks) => marks.has(mark));
  }

  /** Whether such an owner may have rules: none was seen of it, and all were looked at. */
  mayHave(removed: (owner: Owner) => boolean): boolean {
    const { memory } = this.#options;
    if (this.#lostMemory || !this.#seen.has(4)) return true;
    if (memory.chains(6).any && !this.#seen.has(6)) return true;
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
    const look = (wants6: boolean): Promise<Change[]> =>
      this.#compare(sought, wants6, signal, (observed, context) =>
        diffFirewallRemoval(chain, observed, context, removed),
      );
    const changes = await look(false);
    // A podnet that left IPv4 rules may have left IPv6 rules. Without IPv4 rules, no IPv6 command
    // is run.
    const more = this.#lostMemory && changes.length > 0;
    this.#lostMemory = false;
    return more ? look(true) : changes;
  }

  async fingerprint(signal: AbortSignal): Promise<string> {
    const { configured } = this.#options;
    if (configured === "off") return "";
    const seen = this.#programs(false).map((programs) =>
      firewallFingerprint(programs, signal, configured),
    );
    return (await Promise.all(seen)).join("\n");
  }

  async facts(signal: AbortSignal): Promise<FirewallFacts> {
    const { configured, iptables } = this.#options;
    if (configured === "off") return "off";
    const observed = await observeFirewall(iptables, signal, configured);
    return variantInUse(observed, this.#context(configured, 4));
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
    return (await Promise.all(this.#observe(configured, wants6, signal))).flatMap((observed) => {
      const changes = diff(observed, this.#context(configured, observed.family));
      for (const change of changes)
        for (const line of change.kind === "iptables" ? change.lines : []) {
          const mark = line.startsWith("-I ") ? commentOf(splitWords(line)) : undefined;
          if (mark !== undefined) this.#seen.get(observed.family)?.add(mark);
        }
      return changes;
    });
  }

  #observe(
    configured: "auto" | Variant,
    wants6: boolean,
    signal: AbortSignal,
  ): Promise<ObservedFirewall>[] {
    return this.#programs(wants6).map(async (programs) => {
      const observed = await observeFirewall(programs, signal, configured);
      const marks = Object.values(observed.saved).flatMap((saved) => [...marksIn(saved)]);
      this.#seen.set(observed.family, new Set(marks));
      return observed;
    });
  }

  /**
   * The IPv6 programs are included only if there is something to make, or the records say that
   * something was made.
   */
  #programs(wants6: boolean): IptablesPrograms[] {
    const { iptables, ip6tables, memory } = this.#options;
    return wants6 || memory.chains(6).any ? [iptables, ip6tables] : [iptables];
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
