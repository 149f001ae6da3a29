import type { ServiceSpec } from "../../api/service-spec.ts";
import type { NetworkName, PodName, ServiceName } from "../../core/names.ts";
import { isPodnetError } from "../../core/errors.ts";
import type { ServiceDefinition } from "../../daemon/services/store.ts";
import type { LiveNode } from "./daemon-life.ts";
import { LastAnswers } from "./last-answers.ts";
import type { Random } from "./random.ts";
import type { Simulation } from "./simulation.ts";

const names = ["s1", "s2"] as ServiceName[];
const pods = ["a", "b", "c", "d"] as PodName[];

/** What is asked about services, and what was answered. */
export class ServiceActions {
  readonly #sim: Simulation;
  readonly #answers: LastAnswers;

  constructor(sim: Simulation) {
    this.#sim = sim;
    this.#answers = new LastAnswers(sim.promisedServices);
  }

  any(): void {
    const { random } = this.#sim.world;
    const name = random.pick(names);
    const does = random.weighted({ create: 4, update: 2, backends: 3, delete: 2 });
    const spec = drawn(random, name);
    const change = { set: spec.backends, remove: [] };
    const promise = this.#answers.asked(name);
    this.#sim.call(`service ${does} ${JSON.stringify(spec)}`, async ({ services }) => {
      if (does === "create") promise(text(await services.create(spec)));
      else if (does === "update") promise(text(await services.update(spec)));
      else if (does === "backends") promise(text(await services.changeBackends(name, change)));
      else {
        await services.delete(name);
        promise(undefined);
      }
    });
  }
}

/** What of a service stays until it is asked for again. */
const text = ({ addresses, ports, backends, select, affinity }: ServiceDefinition): string =>
  JSON.stringify({ addresses, ports, backends, select, affinity });

/** Services whose answers do not hold any more, and rules that differ from those planned. */
export function serviceViolations({ promisedServices, world }: Simulation, node: LiveNode) {
  const { services } = node;
  const found = [...promisedServices].flatMap(([name, promised]) => {
    const is = storedOf(node, name);
    return is === promised ? [] : [`service ${name} is ${is} instead of ${promised}`];
  });
  const { nftables } = world.kernel;
  const table = "inet podnet_services";
  const rules = nftables.names.includes(table) ? nftables.elements(table) : [];
  const wanted = new Set<string>(services.desired().map(({ name }) => name));
  const owners = new Set(rules.flatMap((line) => /podnet:service:([\w-]+)/.exec(line)?.[1] ?? []));
  for (const name of wanted)
    if (!owners.has(name)) found.push(`service ${name} has no element in ${table}`);
  for (const name of owners)
    if (!wanted.has(name)) found.push(`service ${name} is gone, its elements stay`);
  if (wanted.size === 0 && nftables.names.includes(table)) found.push(`${table} serves nothing`);
  for (const { name, ports, addresses } of services.desired())
    for (const { protocol, backends, number } of ports)
      for (const { address, port } of addresses.length === 0 ? [] : backends)
        if (!rules.some((line) => leads(line, protocol, address, port)))
          found.push(`port ${number} of service ${name} does not lead to ${address}:${port}`);
  return found;
}

const leads = (line: string, protocol: string, address: string, port: number): boolean =>
  line.startsWith(protocol) && line.includes(`${address} . ${port}`);

function storedOf({ services }: LiveNode, name: string): string | undefined {
  try {
    return text(services.get(name));
  } catch (thrown) {
    if (isPodnetError(thrown, "SERVICE_NOT_FOUND")) return undefined;
    throw thrown;
  }
}

function drawn(random: Random, name: ServiceName): ServiceSpec {
  const backends = pods
    .slice(random.below(pods.length))
    .map((pod) => ({ pod, weight: 1 + random.below(2) }));
  return {
    name,
    network: random.weighted({ default: 5, n1: 1 }) as NetworkName,
    addresses: [],
    ports: random.pick([
      [{ protocol: "tcp", port: 80, target: 8080 }],
      [
        { protocol: "tcp", port: 80, target: 8080 },
        { protocol: "udp", port: 53, target: 53 },
      ],
    ] as const),
    backends: random.chance(0.8) ? backends : [],
    ...(random.chance(0.3) ? { select: { role: "web" } } : {}),
  };
}
