import { type Ip, ipOf } from "../../core/address.ts";
import type { Clock } from "../../core/clock.ts";
import { type PodnetError, toPodnetError } from "../../core/errors.ts";
import type { NetworkName } from "../../core/names.ts";
import type { Log } from "../../linux/log.ts";
import type { DnsConfig } from "../config/dns.ts";
import { leaseTimes } from "../dhcp/lease.ts";
import type { Journal } from "../events/journal.ts";
import { KeyedLock } from "../reconcile/keyed-lock.ts";
import type { NetworkDefinition } from "../config/network-definition.ts";
import { recordError } from "../events/error-record.ts";
import type { HolderId } from "../store/holder.ts";
import { Forwarder } from "./forward.ts";
import { type Listen, type Listening, listenOnLink } from "./listen.ts";
import type { NamePolicies } from "./name-policy.ts";
import { Resolver, type ResolverCounts } from "./resolver.ts";
import { StaleAnswers } from "./stale-answers.ts";
import { Turns } from "./turns.ts";
import type { OtherHosts } from "./zone.ts";
import { HostServers, upstreamsOf } from "./upstreams.ts";

/** Facts about pods that names need. */
export interface KnownNames {
  /**
   * Addresses on a network of the pod with a name, if that one runs there, or of containers that
   * their runtime calls so.
   */
  addressesOf(network: NetworkName, pod: string): readonly Ip[] | undefined;
  /** Addresses of a service of a network, if there is one. */
  serviceAddresses?(network: NetworkName, service: string): readonly Ip[] | undefined;
  /** The pod that runs on a network with an address. */
  nameAt(network: NetworkName, ip: Ip): string | undefined;
  /** The holder of a network's address, whether it runs or not. */
  holderAt(network: NetworkName, ip: Ip): HolderId | undefined;
  /** The networks a pod is on, in the order of its interfaces. */
  networksOf(holder: HolderId): readonly NetworkName[];
  /** Whether a guest is configured with one of these servers. */
  isSent(servers: readonly Ip[]): boolean;
  /** Whether guests run on a network that get its settings only on request. */
  hasClients(network: NetworkName): boolean;
}

export interface ResolversParts {
  readonly config: DnsConfig;
  readonly names: KnownNames;
  readonly clock: Clock;
  readonly journal: Pick<Journal, "emit">;
  readonly log: Log;
  /** Which names pods may resolve; without it all of them. */
  readonly policies?: NamePolicies | undefined;
  /** At real sockets unless given. */
  readonly listen?: Listen | undefined;
}

interface Entry {
  /** As it is served now: addresses and upstreams are looked up here. */
  definition: NetworkDefinition;
  /** Where, so that a change is noticed. */
  readonly at: string;
  readonly listening: Listening | undefined;
  /** Why it is not. */
  readonly error: PodnetError | undefined;
  /** When it was tried, of the monotonic clock. */
  readonly triedMs: number;
  /** When guests were last notified of it, of the same. */
  reportedMs: number;
}

/**
 * Shortest pause before a failed listen is retried, milliseconds: finding the holder of a port
 * inspects every process.
 */
const pauseMs = 2000;
/** Between two lines of the log about questions beyond a share, milliseconds. */
const crowdedEveryMs = 60_000;

const gatewaysOf = ({ subnets }: NetworkDefinition): Ip[] =>
  subnets.map(({ gateway }) => ipOf(gateway));

/** The resolvers of all networks that have one: each is asked by its own network's pods alone. */
export class Resolvers implements Disposable {
  readonly #parts: ResolversParts;
  readonly #entries = new Map<NetworkName, Entry>();
  readonly #lock = new KeyedLock<"resolvers">();
  readonly #turns: Turns;
  readonly #stale: StaleAnswers | undefined;
  /** When it was last logged that a network's pods ask too much, of the monotonic clock. */
  readonly #crowdedMs = new Map<NetworkName, number>();
  readonly #host = new HostServers();
  /**
   * Definitions of all networks, also of networks without a resolver; undefined before the first
   * are known.
   */
  #networks: readonly NetworkDefinition[] | undefined;
  #otherHosts: OtherHosts | undefined;
  readonly counts: ResolverCounts = {
    queries: 0,
    forwarded: 0,
    refused: 0,
    timeouts: 0,
    stale: 0,
  };

  constructor(parts: ResolversParts) {
    this.#parts = parts;
    const { clock, config } = parts;
    this.#turns = new Turns(clock);
    this.#stale = config.staleMs === 0 ? undefined : new StaleAnswers(clock, config.staleMs);
  }

  /**
   * Listens on the current addresses of these networks, and on no others. A network that no longer
   * wants a resolver keeps it for the guests that are configured to use it. A failure to listen is
   * reported, and retried by a later call.
   */
  converge(networks: () => readonly NetworkDefinition[]): Promise<void> {
    return this.#lock.run("resolvers", async () => {
      const isFirst = this.#networks === undefined;
      this.#networks = networks();
      const wanted = this.#networks.filter(
        (each) => this.isWanted(each) || this.#isStillAsked(each, isFirst),
      );
      const names = new Set(wanted.map(({ name }) => name));
      for (const name of this.#entries.keys()) if (!names.has(name)) this.#close(name);
      for (const definition of wanted) await this.#follow(definition);
    });
  }

  /**
   * Whether guests still use a resolver that is no longer wanted: guests get the change only when
   * they renew their leases.
   */
  #isStillAsked(network: NetworkDefinition, isFirst: boolean): boolean {
    const { names, clock } = this.#parts;
    const entry = this.#entries.get(network.name);
    if (entry === undefined) return isFirst && names.isSent(gatewaysOf(network));
    const now = clock.monotonic();
    if (names.isSent(gatewaysOf(network))) {
      entry.reportedMs = now;
      return true;
    }
    return now - entry.reportedMs < leaseTimes.renew * 1000 && names.hasClients(network.name);
  }

  /** Whether a network is to have one. */
  isWanted({ resolver }: NetworkDefinition): boolean {
    return resolver ?? this.#parts.config.resolver;
  }

  /** Whether pods of a network are to ask its gateways, and can. */
  answers(network: NetworkName): boolean {
    const entry = this.#entries.get(network);
    return entry?.listening !== undefined && this.isWanted(entry.definition);
  }

  /** Why they cannot, where they should. */
  error(network: NetworkName): PodnetError | undefined {
    return this.#entries.get(network)?.error;
  }

  get domain(): string {
    return this.#parts.config.domain;
  }

  /** From now on pods are notified of those of other hosts, too. */
  reportOn(others: OtherHosts): void {
    this.#otherHosts = others;
  }

  [Symbol.dispose](): void {
    for (const name of this.#entries.keys()) this.#close(name);
  }

  #close(name: NetworkName): void {
    this.#entries.get(name)?.listening?.close();
    this.#entries.delete(name);
    this.#crowdedMs.delete(name);
  }

  async #follow(definition: NetworkDefinition): Promise<void> {
    const { name, bridge } = definition;
    const addresses = gatewaysOf(definition);
    const at = `${bridge} ${addresses.join(" ")}`;
    const before = this.#entries.get(name);
    if (before?.at === at && before.listening?.isThere() === true) {
      before.definition = definition;
      if (this.isWanted(definition)) before.reportedMs = this.#parts.clock.monotonic();
      return;
    }
    const triedMs = this.#parts.clock.monotonic();
    if (before?.at === at && before.error !== undefined && triedMs - before.triedMs < pauseMs)
      return;
    this.#close(name);
    const resolver = this.#resolver(name);
    const entry = { definition, at, triedMs, reportedMs: before?.reportedMs ?? triedMs };
    const { listen = listenOnLink } = this.#parts;
    try {
      const listening = await listen({ link: bridge, addresses }, resolver);
      this.#entries.set(name, { ...entry, listening, error: undefined });
      if (before?.error !== undefined) this.#report(name, undefined);
    } catch (thrown) {
      const error = toPodnetError(thrown);
      this.#entries.set(name, { ...entry, listening: undefined, error });
      if (before?.error?.message !== error.message) this.#report(name, error);
    }
  }

  /** Reports an error once while it stays unchanged. */
  #report(network: NetworkName, error: PodnetError | undefined): void {
    const { log, journal } = this.#parts;
    const part = `resolver ${network}`;
    const text =
      error === undefined
        ? `${part} is asked again`
        : `${part}: pods cannot ask it: ${error.message}`;
    if (error === undefined) log.info({ network }, text);
    else log.error({ network, err: error }, text);
    const drift = { part, found: [], healed: error === undefined, pauseMs: 0 };
    journal.emit({
      kind: "drift",
      data: { text, drift, ...(error === undefined ? {} : { error: recordError(error) }) },
    });
  }

  /**
   * The other networks of a pod. The names of a network without a resolver are not resolved at
   * other gateways either.
   */
  #others(network: NetworkName, asker: HolderId): NetworkName[] {
    const named = new Set(
      this.#networks?.flatMap((each) => (this.isWanted(each) ? each.name : [])),
    );
    return this.#parts.names
      .networksOf(asker)
      .filter((each) => each !== network && named.has(each));
  }

  /** Logs once a minute for each network whose pods ask more than their share. */
  #crowded(network: NetworkName, holder: HolderId): void {
    const { clock, log } = this.#parts;
    const now = clock.monotonic();
    if (now - (this.#crowdedMs.get(network) ?? -Infinity) < crowdedEveryMs) return;
    this.#crowdedMs.set(network, now);
    log.warn({ network, holder }, "DNS queries from an address of this network exceed its share");
  }

  #resolver(network: NetworkName): Resolver {
    const { names, config } = this.#parts;
    return new Resolver({
      network,
      stale: this.#stale,
      policies: this.#parts.policies,
      crowded: ({ holder }) => this.#crowded(network, holder),
      zoneOf: (asker) => ({
        domain: config.domain,
        networks: () => [network, ...this.#others(network, asker)],
        pools: () =>
          (this.#networks ?? []).flatMap(({ subnets }) => subnets.map(({ cidr }) => cidr)),
        addressesOf: names.addressesOf,
        serviceAddresses: names.serviceAddresses,
        nameAt: names.nameAt,
        others: this.#otherHosts,
      }),
      turns: this.#turns,
      forwarder: new Forwarder(),
      counts: this.counts,
      askerAt: (ip) => names.holderAt(network, ip),
      upstreams: () =>
        upstreamsOf({
          network: this.#entries.get(network)?.definition.dns ?? [],
          configured: config.upstreams,
          host: this.#host.now(),
          gateways: (this.#networks ?? []).flatMap(gatewaysOf),
        }),
    });
  }
}
