import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { type Ip, isIp, parseIp } from "../core/address.ts";
import type { Clock } from "../core/clock.ts";
import { guarded } from "../core/guard.ts";
import { originalDestination } from "../linux/conntrack/original-destination.ts";
import { resetConnection } from "../linux/sockets/reset-connection.ts";
import type { DomainName } from "../policy/domain.ts";
import { Connection, type Relay } from "./connection.ts";
import type { RelayVerdict } from "./messages.ts";
import type { Route } from "./route.ts";
import { type PodEntry, Table } from "./table.ts";

export interface RelayLimits {
  /** Connections of all pods, two descriptors each. */
  readonly connections: number;
  /** Connections of one pod. */
  readonly ofPod: number;
  /** Connections of one pod that have not said where they go. */
  readonly undecided: number;
}

/** The connections of a pod. */
interface Share {
  readonly all: Set<Connection>;
  readonly undecided: Set<Connection>;
}

/**
 * Takes connections that the kernel redirected, of pods that its table has. All others are reset:
 * those that were addressed to the relay itself, and those of unknown sources.
 */
export class RelayServer implements Relay {
  readonly table: Table;
  readonly #limits: RelayLimits;
  readonly #report: (verdict: Omit<RelayVerdict, "count">) => void;
  readonly #shares = new Map<string, Share>();
  readonly #servers: Server[] = [];
  #connections = 0;

  constructor(
    clock: Clock,
    limits: RelayLimits,
    report: (verdict: Omit<RelayVerdict, "count">) => void,
  ) {
    this.#limits = limits;
    this.#report = report;
    this.table = new Table(clock, (id) => {
      for (const connection of this.#shares.get(id)?.all ?? []) connection.recheck();
    });
  }

  /** Listens on a port of both families. Throws what `listen` throws. */
  async listen(port: number): Promise<void> {
    for (const host of ["0.0.0.0", "::"]) {
      const server = createServer(
        { allowHalfOpen: true, pauseOnConnect: true, noDelay: true },
        guarded("relay", (client: Socket) => this.#take(client, port), resetConnection),
      );
      // Descriptors are short: whoever waits in the backlog has its turn later.
      server.listen({ host, port, ipv6Only: true, exclusive: true, backlog: 1024 });
      await once(server, "listening");
      server.on("error", () => {});
      this.#servers.push(server);
    }
  }

  close(): void {
    for (const server of this.#servers) server.close();
    for (const { all } of this.#shares.values()) for (const each of all) each.reset();
  }

  entryOf(pod: string): PodEntry | undefined {
    return this.table.byId(pod);
  }

  decided(connection: Connection, route: Route, name: DomainName | null): void {
    this.#shares.get(connection.pod)?.undecided.delete(connection);
    this.#say(connection.pod, connection.to, route, name);
  }

  over(connection: Connection): void {
    this.#connections--;
    const share = this.#shares.get(connection.pod);
    share?.all.delete(connection);
    share?.undecided.delete(connection);
    if (share?.all.size === 0) this.#shares.delete(connection.pod);
  }

  #take(client: Socket, port: number): void {
    const to = originalDestination(client);
    const source = addressOf(client.remoteAddress);
    const entry = source === undefined ? undefined : this.table.byAddress(source);
    const own = to?.port === port && to.ip === addressOf(client.localAddress);
    if (to === undefined || entry === undefined || own) {
      resetConnection(client);
      return;
    }
    const { id } = entry.pod;
    const share = this.#shares.get(id) ?? { all: new Set(), undecided: new Set() };
    const { connections, ofPod, undecided } = this.#limits;
    if (
      this.#connections >= connections ||
      share.all.size >= ofPod ||
      share.undecided.size >= undecided
    ) {
      this.#say(id, to, { decision: tooMany }, null);
      resetConnection(client);
      return;
    }
    this.#shares.set(id, share);
    this.#connections++;
    const connection = new Connection(client, id, to, this);
    share.all.add(connection);
    share.undecided.add(connection);
  }

  #say(
    pod: string,
    to: RelayVerdict["to"],
    { decision, ip }: Route,
    name: DomainName | null,
  ): void {
    const { policy, rule, reason } = decision;
    const verdict = ip === undefined ? "deny" : "allow";
    this.#report({ pod, verdict, policy, rule, reason, name, ...(to === undefined ? {} : { to }) });
  }
}

const tooMany = {
  verdict: "deny",
  policy: "podnet",
  rule: "relay-limit",
  reason: "the pod has too many connections at once",
  by: "any",
} as const;

const addressOf = (text: string | undefined): Ip | undefined => {
  // A link-local address has its zone.
  const [address = ""] = (text ?? "").split("%");
  return isIp(address) ? parseIp(address) : undefined;
};
