import { randomUUID } from "node:crypto";
import { familyOf, type IpPrefix, ipOf, type Mac, networkOf } from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import type {
  GuestConfig,
  GuestDns,
  GuestRoute,
  ObservedGuest,
} from "../../guest-init/protocol/configure.ts";
import { asksAttributes } from "../../guest-init/protocol/attributes.ts";
import type { Nic } from "./machine.ts";
import { TapEnd } from "./tap-end.ts";

interface Link {
  readonly index: number;
  readonly mac: Mac;
  readonly end: TapEnd | undefined;
  name: string;
  mtu: number;
  up: boolean;
  noArp?: true;
  addresses: readonly IpPrefix[];
}

/**
 * The network a guest believes it has: NICs as they are plugged, and what `configure` made of them.
 */
export class GuestNetwork {
  readonly #links = new Map<string, Link>();
  #index = 1;
  #hostname = "(none)";
  #dns: GuestDns = { servers: [], search: [], options: [] };
  #routes: readonly GuestRoute[] = [];
  #loopback: readonly IpPrefix[] = [];
  #arrival = Promise.withResolvers<void>();
  /** Counts the hosts that have left. */
  #host = 0;

  /** Ends all waits, as the agent does: the next host must not queue behind them. */
  giveUp(): void {
    this.#host++;
    this.#arrival.resolve();
    this.#arrival = Promise.withResolvers();
  }

  plugged(nic: Nic, tapFd: number): void {
    this.#index++;
    this.#links.set(nic.id, {
      index: this.#index,
      mac: nic.mac as Mac,
      end: new TapEnd(tapFd, nic.mac),
      name: `eth${this.#links.size}`,
      mtu: 1500,
      up: false,
      addresses: [],
    });
    this.#arrival.resolve();
    this.#arrival = Promise.withResolvers();
  }

  /** The NIC, or its back end alone, has gone: its descriptor must not be used any more. */
  unplugged(nic: Nic): void {
    this.#links.get(nic.id)?.end?.close();
    this.#links.delete(nic.id);
  }

  /** A link answers for these addresses, whoever set them. */
  answerFor(mac: string, addresses: readonly string[]): void {
    const link = this.#withMac(mac as Mac);
    link?.end?.answerFor(addresses.map((address) => ipOf(address as IpPrefix)));
  }

  /** CONFIGURE; throws what the agent would. */
  async configure(config: GuestConfig): Promise<ObservedGuest> {
    const until = performance.now() + config.waitMs;
    const lacking = (): number =>
      config.interfaces.findIndex(({ mac }) => this.#withMac(mac) === undefined);
    const host = this.#host;
    while (lacking() >= 0 && performance.now() < until && host === this.#host)
      await this.#nextArrival(until);
    const absent = config.interfaces[lacking()];
    if (absent !== undefined)
      throw new PodnetError(
        "DEADLINE_EXCEEDED",
        `No interface with MAC ${absent.mac} came within ${config.waitMs} ms`,
        { field: `interfaces[${lacking()}].mac` },
      );
    if (config.hostname !== undefined) this.#hostname = config.hostname;
    if (config.dns !== undefined) this.#dns = config.dns;
    for (const wanted of config.interfaces) {
      const link = this.#withMac(wanted.mac) as Link;
      link.name = wanted.name;
      link.mtu = wanted.mtu ?? link.mtu;
      link.up = true;
      if (wanted.noArp === true) link.noArp = true;
      link.addresses = wanted.addresses;
      link.end?.answerFor(wanted.addresses.map(ipOf));
    }
    this.#routes = config.routes;
    this.#loopback = config.loopback ?? this.#loopback;
    return this.#observe(config);
  }

  #observe(config: GuestConfig): ObservedGuest {
    const { requestId, loopback } = config;
    const reported = asksAttributes(config);
    const links = [...this.#links.values()];
    return {
      requestId,
      hostname: this.#hostname,
      dns: this.#dns,
      interfaces: links.map(({ name, mac, index, mtu, up, noArp, addresses }) => ({
        name,
        mac,
        index,
        mtu,
        up,
        ...(reported && noArp !== undefined && { noArp }),
        addresses,
      })),
      ...(loopback === undefined ? {} : { loopback: this.#loopback }),
      routes: [...this.#routes, ...links.flatMap(connectedRoutes)],
      clockMs: Date.now(),
      agentRssKib: 1024,
    };
  }

  #withMac(mac: Mac): Link | undefined {
    return [...this.#links.values()].find((link) => link.mac === mac);
  }

  async #nextArrival(until: number): Promise<void> {
    const late = Promise.withResolvers<void>();
    const timer = setTimeout(late.resolve, Math.max(1, until - performance.now()));
    await Promise.race([this.#arrival.promise, late.promise]);
    clearTimeout(timer);
  }
}

/** Routes the kernel makes for a link's addresses. */
const connectedRoutes = ({ name, addresses }: Link): GuestRoute[] =>
  addresses.map((prefix) => ({
    destination: networkOf(prefix),
    interface: name,
    ...(familyOf(prefix) === 6 ? { metric: 256 } : {}),
  }));

/** Distinguishes one start of an agent from the next. */
export const newEpoch = (): string => randomUUID();
