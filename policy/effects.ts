import type { Ip } from "../core/address.ts";
import { type DecisionList, type Decisions, type Entry, nameFloor } from "./compile.ts";
import { type Decision, decide, type Flow, relayPorts } from "./decide.ts";
import { canonicalName, type DomainPattern } from "./domain.ts";
import type { Service } from "./model.ts";

/** What goes with a rule of a policy. */
export interface Effect {
  readonly direction: "egress" | "ingress";
  /** Flows that were denied pass, or the other way round. */
  readonly change: "opens" | "closes";
  /** Policy and rule: `builds/web`; of `podnet` what comes with every policy of names. */
  readonly rule: string;
}

/** Of what a rule matches, so many flows are looked at. */
const mostSamples = 64;

/** Addresses for rules that name none: outside, and inside. */
const anywhere: readonly Ip[] = ["203.0.113.250", "10.255.255.250", "2001:db8:ffff::250"].map(
  (ip) => ip as Ip,
);
const everyService: readonly Service[] = (["tcp", "udp", "icmp"] as const).map((protocol) => ({
  protocol,
}));
/** A port that few rules name. */
const anyPort = 9;

/**
 * What a pod may do, and may not any more, without one of its policies: of the rules that decide
 * about some flow those after which another rule decides otherwise. Each is found by flows that the
 * rule matches; one that no such flow shows, for a rule before it decides about them, is left out.
 * `after` is undefined when no policy is left. Pure.
 */
export const effectsOf = (
  before: Decisions,
  after: Decisions | undefined,
  policy: string,
): readonly Effect[] =>
  (["egress", "ingress"] as const).flatMap((direction) =>
    effectsIn(before[direction], after?.[direction], policy).map((effect) => ({
      direction,
      ...effect,
    })),
  );

function effectsIn(
  before: DecisionList,
  after: DecisionList | undefined,
  policy: string,
): readonly Omit<Effect, "direction">[] {
  const found: Omit<Effect, "direction">[] = [];
  const passesAfter = (flow: Flow): boolean => after === undefined || passes(decide(after, flow));
  const stays = ({ policy: of, rule }: Entry): boolean =>
    after?.entries.some((each) => each.policy === of && each.rule === rule) === true;
  const goes = (entry: Entry): boolean =>
    entry.policy === policy || (nameFloor.includes(entry.rule) && !stays(entry));
  for (const entry of before.entries.filter(goes)) {
    const changes = new Set<Effect["change"]>();
    for (const flow of samplesOf(entry)) {
      const decision = decide(before, flow);
      if (decision.policy !== entry.policy || decision.rule !== entry.rule) continue;
      const passed = passes(decision);
      if (passed !== passesAfter(flow)) changes.add(passed ? "closes" : "opens");
    }
    const rule = `${entry.policy}/${entry.rule}`;
    found.push(...[...changes].map((change) => ({ change, rule })));
  }
  const { otherwise } = before;
  // What no rule matches, no rule that stays matches either.
  const verdict = after?.otherwise.verdict ?? "allow";
  if (otherwise.policy === policy && otherwise.verdict !== verdict)
    found.push({
      change: verdict === "allow" ? "opens" : "closes",
      rule: `${policy}/${otherwise.rule}`,
    });
  return found;
}

const passes = ({ verdict }: Decision): boolean => verdict === "allow" || verdict === "relay";

/** Some of the flows that an entry matches. */
function samplesOf({ to, services = everyService }: Entry): readonly Flow[] {
  const ends = to === undefined ? anywhere : to.ranges.flatMap(({ first, last }) => [first, last]);
  const flows = services.flatMap(({ protocol, ports }): Flow[] => {
    const own = protocol === "icmp" ? [undefined] : [ports?.first ?? anyPort, ports?.last];
    return [...new Set(own)].flatMap((port) =>
      ends.map((ip) => ({ ip, protocol, ...(port === undefined ? {} : { port }) })),
    );
  });
  const ports = relayPorts.filter((port) => services.some((service) => serves(service, port)));
  const names = (to?.domains ?? []).flatMap((pattern) => nameIn(pattern) ?? []);
  const named = names.flatMap((name) =>
    ports.map((port): Flow => ({ protocol: "tcp", port, name, answered: [name] })),
  );
  return [...named, ...flows].slice(0, mostSamples);
}

const serves = ({ protocol, ports }: Service, port: number): boolean =>
  protocol === "tcp" && (ports === undefined || (ports.first <= port && port <= ports.last));

const nameIn = ({ name, below }: DomainPattern) => (below ? canonicalName(`a.${name}`) : name);
