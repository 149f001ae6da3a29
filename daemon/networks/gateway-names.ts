import { type Ip, ipOf } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { KnownNetworks } from "./known-networks.ts";
import type { Database } from "../store/database.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import type { NetworkEntries } from "./network-entries.ts";
import { SentServers } from "./sent-servers.ts";

/** The server that answers names at the gateways of networks. */
interface GatewayResolvers {
  /** The domain of pods' names. */
  readonly domain: string;
  /**
   * Answers at the gateways of these networks only; `networks` is called when the operation starts.
   */
  converge(networks: () => readonly NetworkDefinition[]): Promise<void>;
  /** Whether a network's gateways answer now. */
  answers(network: NetworkName): boolean;
  /** Whether a network's gateways are to answer. */
  isWanted(network: NetworkDefinition): boolean;
}

export interface GatewayNamesParts {
  readonly db: Database;
  readonly resolvers: GatewayResolvers;
}

/** Which networks' pods ask their gateways for names, and which guests were sent that. */
export class GatewayNames {
  readonly #parts: GatewayNamesParts;
  readonly #entries: NetworkEntries;
  readonly #reported: SentServers;

  constructor(parts: GatewayNamesParts, entries: NetworkEntries) {
    this.#parts = parts;
    this.#entries = entries;
    this.#reported = new SentServers(parts.db);
  }

  /** See `KnownNetworks`. */
  domainOf(name: NetworkName, reported: readonly Ip[]): string | undefined {
    const { resolvers } = this.#parts;
    const network = this.#entries.get(name)?.definition;
    const isSent =
      network?.subnets.some(({ gateway }) => reported.includes(ipOf(gateway))) === true &&
      this.isResolving(network);
    return isSent || resolvers.answers(name) ? resolvers.domain : undefined;
  }

  /** Whether pods of a network are to ask its gateways for names. */
  isResolving(network: NetworkDefinition): boolean {
    return this.#parts.resolvers.isWanted(network);
  }

  /** The present networks, with this definition in place of its network's. */
  networksWith(network: NetworkDefinition): KnownNetworks {
    return {
      list: () => this.#entries.list().map((each) => (each.name === network.name ? network : each)),
      refuseChanging: () => {},
      domainOf: (name, reported) => {
        if (name !== network.name) return this.domainOf(name, reported);
        return this.#domainOn(network);
      },
    };
  }

  /** The networks whose guests were sent other name servers than the current ones. */
  outdated(): NetworkName[] {
    return this.#reported.outdated(this.#entries.list(), this.#domainOn);
  }

  /**
   * Records that all guests were sent the name servers, or that the rows of their pods contain
   * them.
   */
  noteSent(): void {
    this.#reported.note(this.#entries.list(), this.#domainOn);
  }

  /**
   * Starts answering names for pods of all networks that have it enabled. Failures are reported and
   * retried.
   */
  answer(): Promise<void> {
    return this.#parts.resolvers.converge(() => this.#entries.list());
  }

  /** Stops answering. */
  async silence(): Promise<void> {
    await this.#parts.resolvers.converge(() => []);
  }

  /** A text about the servers that pods can ask for names. */
  text(definition: NetworkDefinition): string[] {
    if (!this.isResolving(definition)) return [];
    const { subnets, bridge } = definition;
    const gateways = subnets.map(({ gateway }) => ipOf(gateway)).join(" and ");
    return [`names at ${gateways}, port 53, for pods on ${bridge} alone`];
  }

  readonly #domainOn = (network: NetworkDefinition): string | undefined =>
    this.isResolving(network) ? this.#parts.resolvers.domain : undefined;
}
