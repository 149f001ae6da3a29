import { ipOf } from "../../core/address.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Database } from "../store/database.ts";
import { getMeta, setMeta } from "../store/meta.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";

/** What decides whom guests of a network ask for names, in a line that begins with its name. */
function line(
  { name, subnets, dns, dnsSearch }: NetworkDefinition,
  domain: string | undefined,
): string {
  const gateways = subnets.map(({ gateway }) => ipOf(gateway));
  return `${name} ${JSON.stringify([domain ?? "", gateways, dns, dnsSearch])}`;
}

/**
 * What guests of each network have been notified of name servers, kept alongside the networks: a
 * podnetd that ends before it has told all of them leaves word to the next, and so does a
 * configuration that has changed.
 */
export class SentServers {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * The networks of which guests were told otherwise. One that is new here was notified of nothing.
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

  /** All guests have been told, or are in the rows of their pods. */
  note(
    networks: readonly NetworkDefinition[],
    domainOf: (network: NetworkDefinition) => string | undefined,
  ): void {
    const reported = networks.map((network) => line(network, domainOf(network))).join("\n");
    if (reported !== getMeta(this.#db, "names_told")) setMeta(this.#db, "names_told", reported);
  }
}
