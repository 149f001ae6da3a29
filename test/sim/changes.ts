import type { NetworkSpec } from "../../api/network-spec.ts";
import type { PortSpec } from "../../api/pod-spec.ts";
import type { LimitsChange } from "../../core/rate-limits.ts";
import type { InterfaceChange } from "../../api/validate/interface-change.ts";
import type { Ip, IpPrefix } from "../../core/address.ts";
import type { IfName, NetworkName } from "../../core/names.ts";
import type { Simulation } from "./simulation.ts";

const networks = ["n1", "n2"] as NetworkName[];

/** What is asked of pods that run, and of networks. */
export class Changes {
  readonly #sim: Simulation;
  /** How often each network's delete was asked for. */
  readonly #deletes = new Map<NetworkName, number>();

  constructor(sim: Simulation) {
    this.#sim = sim;
  }

  pod(id: string): void {
    const sim = this.#sim;
    const { random } = sim.world;
    const what = random.weighted({
      pause: 2,
      resume: 3,
      stop: 2,
      interface: 4,
      publish: 3,
      unpublish: 2,
      limit: 3,
    });
    const interfaceChange = this.#interfaceChange();
    const first = random.below(3);
    const ports = Array.from({ length: 1 + random.below(2) }, (_, i) => this.#port(first + i));
    const limits = this.#limits();
    const limited = random.chance(0.5) ? ("eth0" as IfName) : undefined;
    const force = random.chance(0.3);
    const detail = what === "interface" ? JSON.stringify(interfaceChange) : "";
    sim.call(`${what} ${id} ${detail}`, async ({ pods }) => {
      switch (what) {
        case "pause":
          await pods.pause(id);
          return;
        case "resume":
          await pods.resume(id);
          return;
        case "stop":
          await pods.stop(id, { force });
          return;
        case "interface":
          await pods.changes.changeInterface(id, interfaceChange);
          return;
        case "publish":
          await pods.changes.publish(id, ports);
          return;
        case "limit":
          await pods.changes.limit(id, limits, limited);
          return;
        case "unpublish":
          await pods.changes.unpublish(id, ports);
      }
    });
  }

  #interfaceChange(): InterfaceChange {
    const { random } = this.#sim.world;
    const name = random.pick(["eth0", "eth1", "eth2", "eth3"]) as IfName;
    const what = random.pick(["add", "add", "set", "remove"] as const);
    if (what === "remove") return { kind: "remove", name };
    const addresses = [`10.9.0.${random.below(17)}` as Ip];
    if (what === "set")
      return random.chance(0.5)
        ? { kind: "set", name, mtu: random.pick([1400, 1450, 1500]) }
        : { kind: "set", name, addresses };
    const network = random.weighted({ default: 3, n1: 1, n2: 1 }) as NetworkName;
    const spec = { network, ...(random.chance(0.2) ? { addresses } : {}) };
    return { kind: "add", spec, routes: [] };
  }

  #limits(): LimitsChange {
    const { random } = this.#sim.world;
    const limit = (): NonNullable<LimitsChange["in"]> => ({
      bandwidth: random.pick([null, 0, 1e6, 50e6]),
      packets: random.pick([null, 0, 1000]),
    });
    return random.pick([{ in: limit() }, { out: limit() }, { in: limit(), out: limit() }]);
  }

  /** One request names no port twice. */
  #port(number: number): PortSpec {
    const { random } = this.#sim.world;
    return {
      ...(random.chance(0.5) ? { hostIp: "0.0.0.0" as Ip } : {}),
      hostPort: 8000 + (number % 3),
      podPort: 80,
      count: 1,
      protocol: "tcp",
    };
  }

  network(): void {
    const sim = this.#sim;
    const { random } = sim.world;
    const name = random.pick(networks);
    const spec = this.#spec(name);
    const what = random.pick(["create", "create", "update", "delete"] as const);
    // From here on it may be gone, whatever is answered.
    if (what === "delete") {
      sim.promisedNetworks.delete(name);
      this.#deletes.set(name, (this.#deletes.get(name) ?? 0) + 1);
    }
    const deletes = this.#deletes.get(name);
    sim.call(`network ${what} ${name}`, async (node) => {
      if (what === "create") {
        await node.networks.create(spec, { force: true });
        if (deletes === this.#deletes.get(name)) sim.promisedNetworks.add(name);
      } else if (what === "update") await node.networks.update(spec, { force: true });
      else await node.networks.delete(name);
    });
  }

  #spec(name: NetworkName): NetworkSpec {
    const { random } = this.#sim.world;
    const number = networks.indexOf(name) + 1;
    const subnet = (cidr: string) => ({ cidr: cidr as IpPrefix, ranges: [], reserved: [] });
    return {
      name,
      subnets: [
        subnet(`10.9.${number}.${random.pick([1, 17])}/28`),
        ...(random.chance(0.5) ? [subnet(`fd09:${number}::1/124`)] : []),
      ],
      mtu: random.pick([1400, 1500]),
      ...(random.chance(0.3) ? { limits: { out: { bandwidth: 20e6 } } } : {}),
      dns: [],
      dnsSearch: [],
      masquerade: random.chance(0.7),
      isolated: random.chance(0.3),
      vlanFiltering: false,
    };
  }
}
