import { ipOf } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Database } from "../store/database.ts";
import { getMeta, setMeta } from "../store/meta.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";

/**
 * The properties that decide which name servers a network's guests use, in a line that starts with
 * the network's name.
 */
function line(
  { name, subnets, dns, dnsSearch }: NetworkDefinition,
  domain: string | undefined,
): string {
  const gateways = subnets.map(({ gateway }) => ipOf(gateway));
  return `${name} ${JSON.stringify([domain ?? "", gateways, dns, dnsSearch])}`;
}

/**
 * The name servers that the guests of each network were sent, stored with the networks. If podnetd
 * ends before it has updated all guests, or its configuration has changed, the next podnetd updates
 * the others.
 */
export class SentServers {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * The networks whose guests were sent other name servers. Guests of a new network were sent none.
   */
  outdated(
    networks: readonly NetworkDefinition[],
    domainOf: (network: NetworkDefinition) => string | undefined,
  ): NetworkName[] {
    const reported = (getMeta(this.#db, "names_told") ?? "").split("\n");
    return networks.flatMap((network) => {
      const known = reported.find((each) => each.startsWith(`${network.name} `));
      return known === undefined || known === line(network, domainOf(network)) ? [] : network.name;
    });
  }

  /**
   * Records that all guests were sent the name servers, or that the rows of their pods contain
   * them.
   */
  note(
    networks: readonly NetworkDefinition[],
    domainOf: (network: NetworkDefinition) => string | undefined,
  ): void {
    const reported = networks.map((network) => line(network, domainOf(network))).join("\n");
    if (reported !== getMeta(this.#db, "names_told")) setMeta(this.#db, "names_told", reported);
  }
}
