import type { NetworkSpec } from "../../api/network-spec.ts";
import { PodnetError } from "../../core/errors.ts";
import { changesText } from "../../network/bridge/change-text.ts";
import { policyLines } from "../../policy/policy-text.ts";
import { readInlineRules } from "../../policy/read-document.ts";
import { type NetworkDefinition, sameSubnets } from "../config/network-definition.ts";
import type { GatewayNames } from "./gateway-names.ts";
import type { NetworkEntries, NetworkEntry } from "./network-entries.ts";
import { type Asked, hostMs, type NetworksParts } from "./networks-parts.ts";
import {
  overlapsOfNetworks,
  overlapsOfServices,
  planNetwork,
  refuseOverlaps,
} from "./plan-network.ts";
import { configuredError, leasedError, refuseInUse, refuseUpdate } from "./refuse-update.ts";

/** Networks of a node: each costs some ten rules. */
const most = 256;

function rulesText({ name, policy }: NetworkDefinition): readonly string[] {
  return policy === undefined
    ? []
    : policyLines(readInlineRules(policy, { kind: "network", name }));
}

function changedRulesText(before: NetworkDefinition, after: NetworkDefinition): readonly string[] {
  const [had, has] = [rulesText(before), rulesText(after)];
  return [
    ...had.filter((line) => !has.includes(line)).map((line) => `- ${line}`),
    ...has.filter((line) => !had.includes(line)).map((line) => `+ ${line}`),
  ];
}

/** Plans changes of networks, and describes them before anything happens. */
export class NetworkPlans {
  readonly #parts: NetworksParts;
  readonly #entries: NetworkEntries;
  readonly #names: GatewayNames;
  /** Networks whose subnets come from an overlay. */
  readonly leased = new Set<string>();

  constructor(parts: NetworksParts, entries: NetworkEntries, names: GatewayNames) {
    this.#parts = parts;
    this.#entries = entries;
    this.#names = names;
  }

  /**
   * The changes of the host that a create would make, a line each. Reserves nothing. Throws as
   * `create` does before it starts.
   */
  async textOfCreate(spec: NetworkSpec, asked: Asked): Promise<readonly string[]> {
    const definition = await this.planNew(spec, asked);
    const fragment = this.#entries.plain(definition);
    const changes = await this.#parts.host.diff(fragment, AbortSignal.timeout(hostMs));
    return [...changesText(changes), ...this.#names.text(definition), ...rulesText(definition)];
  }

  /** The changes that an update would make, a line each. Reserves nothing. */
  async textOfUpdate(spec: NetworkSpec, asked: Asked): Promise<readonly string[]> {
    const { entry, before, definition } = await this.planChange(spec, asked);
    const { host } = this.#parts;
    const changes = await host.diff(
      this.#entries.between([before, ...entry.left], definition),
      AbortSignal.timeout(hostMs),
    );
    const ports = this.#parts.changedPorts(definition);
    const names = this.#names.text(definition);
    const sameNames = this.#names.text(before).join() === names.join();
    return [
      ...changesText(changes),
      ...(sameNames ? [] : names.length > 0 ? names : ["names no more"]),
      ...changedRulesText(before, definition),
      ...ports.flatMap((each) => [...host.describe(each)]),
      ...this.#parts.changedServersText(spec.name, this.#names.networksWith(definition)),
    ];
  }

  /** The objects that a delete would remove, a line each. Reserves nothing. */
  textOfDelete(name: string): readonly string[] {
    const entry = this.#entries.get(name);
    if (entry === undefined) return [];
    this.refuseDelete(entry.definition);
    const { definition } = entry;
    return [
      ...this.#parts.host.describe(this.#entries.plain(definition)),
      ...this.#names.text(definition),
    ];
  }

  /** Plans a new network. Throws the reason if it is impossible; reserves nothing. */
  async planNew(spec: NetworkSpec, { force }: Asked): Promise<NetworkDefinition> {
    const others = this.#entries.list();
    const holder = others.find(({ name }) => name === spec.name);
    if (holder !== undefined)
      throw new PodnetError("NAME_IN_USE", `There is a network "${spec.name}" already`, {
        field: "name",
        hint: `Choose another name, or change it: podnet network update ${spec.name}`,
        details: { holder: holder.name },
      });
    if (others.length >= most)
      throw new PodnetError("LIMIT_REACHED", `A node has at most ${most} networks`, {
        hint: "Delete an unused one: podnet network delete",
        details: { limit: most },
      });
    const definition = planNetwork(spec, others, undefined, force);
    if (!force) await this.#refuseOverlaps(definition, others);
    return definition;
  }

  /** Plans the change of a network. Throws the reason if it is impossible; reserves nothing. */
  async planChange(
    spec: NetworkSpec,
    { force }: Asked,
  ): Promise<{ entry: NetworkEntry; before: NetworkDefinition; definition: NetworkDefinition }> {
    const entry = this.#entries.find(spec.name);
    const before = entry.definition;
    this.#refuseOthers(before);
    const others = this.#entries.list().filter(({ name }) => name !== spec.name);
    const definition = planNetwork(spec, others, before, force);
    const { db, addresses } = this.#parts;
    const moves = !sameSubnets(before, definition);
    if (moves && !force) await this.#refuseOverlaps(definition, others);
    refuseUpdate(db, this.#parts.sentMtus(before.name), before, definition);
    // Called only for its errors.
    addresses.prepare(definition);
    return { entry, before, definition };
  }

  /** Throws `NETWORK_IN_USE`, and `WRONG_STATE` of one that is not the API's. */
  refuseDelete(definition: NetworkDefinition): void {
    this.#refuseOthers(definition);
    refuseInUse(this.#parts.db, definition);
  }

  async #refuseOverlaps(
    definition: NetworkDefinition,
    others: readonly NetworkDefinition[],
  ): Promise<void> {
    const cidrs = definition.subnets.map(({ cidr }) => cidr);
    const ours = overlapsOfNetworks(cidrs, others);
    refuseOverlaps(cidrs, ours);
    const { serviceCidrs = [] } = this.#parts.config;
    refuseOverlaps(cidrs, overlapsOfServices(cidrs, serviceCidrs));
    refuseOverlaps(cidrs, await this.#parts.host.observe.overlaps(this.#entries.plain(definition)));
  }

  /** Refuses changes of networks that the configuration or an overlay manages. */
  #refuseOthers(definition: NetworkDefinition): void {
    if (this.#isConfigured(definition)) throw configuredError(definition);
    if (this.leased.has(definition.name)) throw leasedError(definition);
  }

  #isConfigured({ name }: NetworkDefinition): boolean {
    return name === this.#parts.configured;
  }
}
