import type { HostObservations } from "../../network/bridge/observations.ts";
import { directions, ruleNumber } from "../../network/firewall/nftables/denials.ts";
import type { FragmentKey } from "../../network/model/desired.ts";
import type { DecisionList, Decisions } from "../../policy/compile.ts";
import type { Decision } from "../../policy/decide.ts";
import type { DenialData } from "../events/store.ts";

/** What one rule has denied of one pod or container, so far. */
export type Denial = DenialData;

type Why = Pick<Decision, "policy" | "rule" | "reason">;

export interface DenialsParts {
  readonly observe: Pick<HostObservations, "denials">;
  /** What decides about a pod or container; undefined where no policy does. */
  readonly decisionsOf: (owner: FragmentKey) => Decisions | undefined;
}

/** Rules of a holder that are told apart, of those that podnetd itself counts. */
const mostRules = 1000;

/**
 * What policies have denied, by pod or container and rule: packets are counted by the kernel, for
 * as long as their pod has a policy; connections that the relay denied, and questions that the
 * resolver refused, since podnetd started.
 */
export class Denials {
  readonly #parts: DenialsParts;
  /** By holder, and rule. */
  readonly #counted = new Map<string, Map<string, Denial>>();

  constructor(parts: DenialsParts) {
    this.#parts = parts;
  }

  get decisionsOf(): DenialsParts["decisionsOf"] {
    return this.#parts.decisionsOf;
  }

  /** Adds what the relay or the resolver has denied. */
  add({ holder, direction, policy, rule, reason, unit, count }: Denial): void {
    const denial: Denial = { holder, direction, policy, rule, reason, unit, count };
    const rules = this.#counted.get(denial.holder) ?? new Map<string, Denial>();
    this.#counted.set(denial.holder, rules);
    const own = keyOf(denial);
    const fits = rules.has(own) || rules.size < mostRules;
    const counted = fits ? denial : { ...denial, ...manyRules };
    const before = rules.get(keyOf(counted))?.count ?? 0;
    rules.set(keyOf(counted), { ...counted, count: before + denial.count });
  }

  /** All there is, or that of some holders. Throws `FIREWALL_FAILED`. */
  async list(signal: AbortSignal, holders?: readonly string[]): Promise<readonly Denial[]> {
    const packets = await this.#parts.observe.denials(signal);
    for (const holder of this.#counted.keys())
      if (!this.#isPoliced(holder)) this.#counted.delete(holder);
    const all = [
      ...packets.flatMap(({ owner, rule, packets: count }): Denial[] => {
        const named = rulesOf(this.#parts.decisionsOf(owner)).get(rule);
        return named === undefined ? [] : [{ holder: owner.key, ...named, unit: "packets", count }];
      }),
      ...[...this.#counted.values()].flatMap((rules) => [...rules.values()]),
    ];
    return holders === undefined ? all : all.filter(({ holder }) => holders.includes(holder));
  }

  #isPoliced(key: string): boolean {
    const { decisionsOf } = this.#parts;
    return (["pod", "attachment"] as const).some(
      (kind) => decisionsOf({ kind, key }) !== undefined,
    );
  }
}

const manyRules = { policy: "podnet", rule: "others", reason: "of many rules" } as const;

/** A denial whatever its count. */
export const keyOf = ({ holder, direction, policy, rule, unit }: Denial): string =>
  JSON.stringify([holder, direction, policy, rule, unit]);

/** As the API shows it. */
export const denialView = ({ holder: _holder, count, ...rule }: Denial) => ({
  ...rule,
  count: BigInt(count),
});

const known = new WeakMap<DecisionList, ReadonlyMap<number, Why & Pick<Denial, "direction">>>();

/** The rules that deny, by the numbers by which the kernel knows them. */
export function rulesOf(
  decisions: Decisions | undefined,
): ReadonlyMap<number, Why & Pick<Denial, "direction">> {
  if (decisions === undefined) return new Map();
  return new Map(directions.flatMap((direction) => [...numbered(decisions[direction], direction)]));
}

function numbered(list: DecisionList, direction: Denial["direction"]) {
  const found =
    known.get(list) ??
    new Map(
      [...list.entries, list.otherwise].flatMap(({ policy, rule, reason, verdict }) =>
        verdict === "allow"
          ? []
          : [[ruleNumber(direction, policy, rule), { direction, policy, rule, reason }] as const],
      ),
    );
  known.set(list, found);
  return found;
}
