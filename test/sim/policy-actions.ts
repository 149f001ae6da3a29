import { isPodnetError } from "../../core/errors.ts";
import { LastAnswers } from "./last-answers.ts";
import type { Random } from "./random.ts";
import type { Simulation } from "./simulation.ts";

const names = ["p1", "p2", "p3"];

/** What is asked about policies, and what was answered. */
export class PolicyActions {
  readonly #sim: Simulation;
  readonly #answers: LastAnswers;

  constructor(sim: Simulation) {
    this.#sim = sim;
    this.#answers = new LastAnswers(sim.promisedPolicies);
  }

  any(): void {
    const { random } = this.#sim.world;
    const name = random.pick(names);
    if (random.chance(0.3)) this.#delete(name);
    else this.#apply(name);
  }

  #apply(name: string): void {
    const sim = this.#sim;
    const document = drawn(sim.world.random, name);
    const text = JSON.stringify(document);
    const promise = this.#answers.asked(name);
    sim.call(`policy apply ${text}`, async ({ policies }) => {
      await policies.apply(document);
      promise(text);
    });
  }

  #delete(name: string): void {
    const sim = this.#sim;
    const promise = this.#answers.asked(name);
    sim.call(`policy delete ${name}`, async ({ policies }) => {
      await policies.delete(name);
      promise(undefined);
    });
  }
}

/** Policies whose answers do not hold any more. */
export const policyViolations = (sim: Simulation): string[] =>
  [...sim.promisedPolicies].flatMap(([name, document]) => {
    const found = documentOf(sim, name);
    return found === document ? [] : [`policy ${name} is ${found} instead of ${document}`];
  });

function documentOf({ node }: Simulation, name: string): string | undefined {
  try {
    return JSON.stringify(node?.policies.get(name).document);
  } catch (thrown) {
    if (isPodnetError(thrown, "POLICY_NOT_FOUND")) return undefined;
    throw thrown;
  }
}

/** A policy as its file has it. */
function drawn(random: Random, name: string): object {
  const applies = random.pick([
    { pods: ["a", "b"] },
    { networks: ["default"] },
    { networks: ["n1", "n2"] },
    { labels: { role: "web" } },
    {},
  ]);
  const rules = (names: readonly string[]): object => ({
    default: random.pick(["allow", "deny", "deny"]),
    rules: names.slice(random.below(names.length)).map((rule) => ruleOf(random, rule)),
  });
  const egress = random.chance(0.8);
  return {
    name,
    applies_to: applies,
    ...(egress ? rules(["e1", "e2", "e3"]) : {}),
    ...(!egress || random.chance(0.4) ? { ingress: rules(["i1", "i2"]) } : {}),
  };
}

function ruleOf(random: Random, name: string): object {
  const peers: readonly object[] = [
    {},
    { cidrs: ["198.51.100.0/24"] },
    { cidrs: ["203.0.113.9", "10.9.0.0/16", "2001:db8:5::/48", "198.51.100.1-198.51.100.9"] },
    { pods: { labels: { role: "web" } } },
    { pods: {} },
  ];
  // (Who opens a connection to a pod has no name.)
  if (name.startsWith("e") && random.chance(0.15))
    return { name, action: random.pick(["allow", "deny"]), domains: ["*.example.com"] };
  return {
    name,
    action: random.pick(["allow", "allow", "deny"]),
    ...random.pick(peers),
    ...random.pick([
      {},
      { ports: [80] },
      { protocol: "tcp", ports: ["20-90"] },
      { protocol: "udp" },
      { protocol: "icmp" },
    ]),
  };
}
