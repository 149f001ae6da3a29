import { connect, type Socket } from "node:net";
import { guarded } from "../core/guard.ts";
import { isLocalAddress } from "../linux/sockets/local-address.ts";
import { resetConnection } from "../linux/sockets/reset-connection.ts";
import { ClientHelloReader } from "../policy/client-hello.ts";
import { type Decision, decide } from "../policy/decide.ts";
import type { DomainName } from "../policy/domain.ts";
import { closingHead, RequestHeadReader } from "../policy/request-head.ts";
import { startReasons } from "../policy/start-reasons.ts";
import { denialOf, type Speech } from "./denial.ts";
import { type Destination, type Route, routeOf } from "./route.ts";
import type { PodEntry } from "./table.ts";
import { passUpgrade } from "./upgrade.ts";

/** Milliseconds until a connection has said where it goes. */
const startMs = 10_000;
/** Milliseconds until its destination has answered. */
const dialMs = 10_000;
/** Milliseconds that a client has to read why it is denied. */
const farewellMs = 500;
/** Milliseconds of silence after which the kernel asks whether an end is still there. */
const quietMs = 60_000;

const handshake = 22;

/** What a connection needs of the relay that has it. */
export interface Relay {
  /** The pod's decisions now; undefined once it is gone. */
  entryOf(pod: string): PodEntry | undefined;
  /** The connection has been decided. */
  decided(connection: Connection, route: Route, name: DomainName | null): void;
  /** The connection is over. */
  over(connection: Connection): void;
}

/** What was read of a connection's beginning. */
interface Start {
  readonly speech: Speech;
  readonly name: DomainName | null;
  /** Why nothing could be read. */
  readonly trouble?: string;
  /** To be passed on. */
  readonly bytes: Uint8Array;
  /** Of HTTP: how many of the bytes are the head. */
  readonly head: number;
  readonly upgrade: boolean;
}

/** One connection of a pod: it is read, decided, dialled and passed on, or denied. */
export class Connection {
  readonly pod: string;
  readonly to: Destination;
  readonly #client: Socket;
  readonly #relay: Relay;
  #reader: ClientHelloReader | RequestHeadReader | undefined;
  #upstream: Socket | undefined;
  /** The flow that was allowed, to be asked about again. */
  #allowed: { readonly ip: Destination["ip"]; readonly name: DomainName | null } | undefined;
  #timer: NodeJS.Timeout | undefined;
  #open = 1;

  /** `client` is paused. */
  constructor(client: Socket, pod: string, to: Destination, relay: Relay) {
    [this.pod, this.to, this.#client, this.#relay] = [pod, to, client, relay];
    client.on("error", () => {});
    client.once(
      "close",
      guarded("relay", (failed: boolean) => this.#closed(failed)),
    );
    client.on("data", this.#onData);
    client.once("end", this.#onEnd);
    this.#wait(startMs, () => this.#go(this.#unread("slow")));
    client.resume();
  }

  /** Asks once more whether it is allowed, and resets it when it is not. */
  recheck(): void {
    const entry = this.#relay.entryOf(this.pod);
    if (entry === undefined) this.reset();
    else if (this.#allowed !== undefined) {
      const { egress } = entry.pod;
      const flow = { ...this.#allowed, protocol: "tcp", port: this.to.port } as const;
      if (decide(egress, flow).verdict !== "allow") this.reset();
    }
  }

  reset(): void {
    for (const end of [this.#client, this.#upstream]) if (end !== undefined) resetConnection(end);
  }

  readonly #onData = guarded(
    "relay",
    (piece: Uint8Array) => {
      this.#reader ??= piece[0] === handshake ? new ClientHelloReader() : new RequestHeadReader();
      const start = this.#read(this.#reader, piece);
      if (start !== undefined) this.#go(start);
    },
    () => this.reset(),
  );

  /** It has nothing more to say, and has not said where it goes. */
  readonly #onEnd = guarded("relay", () => this.reset());

  #read(reader: ClientHelloReader | RequestHeadReader, piece: Uint8Array): Start | undefined {
    const read = reader.take(piece);
    const bytes = reader.start;
    const speech = reader instanceof ClientHelloReader ? "tls" : "http";
    switch (read.kind) {
      case "more":
        return undefined;
      case "refused":
        return this.#unread(read.reason, read.reason === "not-http" ? "unknown" : speech);
      case "hello":
        return { speech, name: read.name, bytes, head: 0, upgrade: false };
      default: {
        const { name, length: head, upgrade } = read.head;
        return { speech, name, bytes, head, upgrade };
      }
    }
  }

  /** What says no name, or hides it: only a rule for its address allows it. */
  #unread(reason: keyof typeof startReasons, speech: Speech = "unknown"): Start {
    const bytes = this.#reader?.start ?? new Uint8Array();
    return { speech, name: null, trouble: startReasons[reason], bytes, head: 0, upgrade: false };
  }

  #go(start: Start): void {
    clearTimeout(this.#timer);
    this.#client.pause();
    this.#client.off("data", this.#onData);
    this.#client.off("end", this.#onEnd);
    this.#reader = undefined;
    const entry = this.#relay.entryOf(this.pod);
    if (entry === undefined) {
      this.reset();
      return;
    }
    const route = routeFor(entry, this.to, start);
    this.#relay.decided(this, route, start.name);
    if (route.ip === undefined) this.#deny(start, route.decision);
    else this.#dial(route.ip, route.decision, start);
  }

  #deny(start: Start, decision: Decision): void {
    const words = denialOf(start.speech, start.name, decision);
    if (words.length === 0) {
      this.reset();
      return;
    }
    // What it still sends is read, lest the reset overtake the answer.
    this.#client.resume();
    this.#client.end(words);
    this.#wait(farewellMs, () => this.reset());
  }

  #dial(ip: Destination["ip"], decision: Decision, start: Start): void {
    this.#allowed = { ip, name: start.name };
    const upstream = connect({ host: ip, port: this.to.port, allowHalfOpen: true, noDelay: true });
    this.#upstream = upstream;
    this.#open++;
    upstream.on("error", () => {});
    upstream.once(
      "close",
      guarded("relay", (failed: boolean) => this.#closed(failed)),
    );
    this.#wait(dialMs, () => this.reset());
    const join = (): void => {
      clearTimeout(this.#timer);
      this.#client.setKeepAlive(true, quietMs);
      upstream.setKeepAlive(true, quietMs);
      this.#join(upstream, decision, start);
    };
    upstream.once(
      "connect",
      guarded("relay", join, () => this.reset()),
    );
  }

  #join(upstream: Socket, decision: Decision, start: Start): void {
    const { bytes, head, upgrade } = start;
    const client = this.#client;
    // A second request could name another host, unread.
    if (head > 0 && decision.by !== "address" && !upgrade) {
      upstream.write(closingHead(bytes.subarray(0, head)));
      upstream.write(bytes.subarray(head));
    } else upstream.write(bytes);
    if (upgrade && decision.by !== "address") {
      passUpgrade(client, upstream, () => this.reset());
      return;
    }
    client.pipe(upstream);
    upstream.pipe(client);
  }

  #wait(milliseconds: number, then: () => void): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      guarded("relay", then, () => this.reset()),
      milliseconds,
    );
  }

  #closed(failed: boolean): void {
    // An end that failed, or went before the other was there, takes the other with it.
    if (failed || this.#upstream === undefined || this.#upstream.connecting) this.reset();
    if (--this.#open > 0) return;
    clearTimeout(this.#timer);
    this.#relay.over(this);
  }
}

/** Where the connection goes; the reason says what could not be read. */
function routeFor(entry: PodEntry, to: Destination, { name, trouble }: Start): Route {
  const route = routeOf(entry, to, name, isLocalAddress);
  if (trouble === undefined) return route;
  if (route.ip !== undefined && route.decision.by === "address") return route;
  return { decision: { ...route.decision, verdict: "deny", reason: trouble } };
}
