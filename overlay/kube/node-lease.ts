import { PodnetError } from "../../core/errors.ts";
import { guard } from "../../core/guard.ts";
import type { Followed } from "../../kubernetes/follow.ts";
import type { KubeObject } from "../../kubernetes/objects.ts";
import type { Host } from "../claim.ts";
import type { OverlayConfig } from "../flannel/config.ts";
import { sameSubnets, type Subnets } from "../flannel/key.ts";
import type { HostLease, HostLeaseParts, HostLeaseState } from "../host-lease.ts";
import type { LeasePhase } from "../lease-status.ts";
import { Registry } from "../registry.ts";
import type { StoreEvent } from "../store.ts";
import { isDataOf, takesPart } from "./annotations.ts";
import { NetConf } from "./net-conf.ts";
import { type OverlayNode, readNode } from "./node.ts";
import { nodeKey, NodeLeases, type NodeLeasesOptions, outside, subnetsIn } from "./node-leases.ts";
import type { NodeStore } from "./node-store.ts";
import { nodeTroubles, Troubles } from "./node-troubles.ts";
import { NodeWriter, wantedOf } from "./node-writer.ts";

/** The settings of Kubernetes as subnet manager. */
export interface NodeSettings {
  /** The name of this host's Node. */
  readonly node: string;
  readonly annotationPrefix: string;
  /** The path of net-conf.json, for messages. */
  readonly netConf: string;
  /** Whether the Node's condition NetworkUnavailable is written. */
  readonly writesCondition: boolean;
}

export interface NodeLeaseParts extends HostLeaseParts {
  readonly store: NodeStore;
  readonly settings: NodeSettings;
  /** Reads net-conf.json; undefined if it is not there. */
  readonly readConfig: () => Promise<string | undefined>;
  readonly wasKnown?: NodeLeasesOptions["wasKnown"];
  /** The time between two looks at net-conf.json, milliseconds. */
  readonly configEveryMs?: number;
}

/**
 * This host's part in an overlay whose subnets Kubernetes gives: each Node has its podCIDR, and
 * says in flannel's annotations how it is reached. There is nothing to acquire or to renew. What
 * this host has by its Node it keeps, whatever becomes of the Node, until its pods are gone.
 */
export class NodeLease implements HostLease {
  readonly registry = new Registry();
  readonly #parts: NodeLeaseParts;
  readonly #nodes: NodeLeases;
  readonly #writer: NodeWriter;
  readonly #stop = new AbortController();
  readonly #troubles = new Troubles();
  readonly #tasks = new Set<Promise<void>>();
  #netConf: NetConf | undefined;
  #config: OverlayConfig | undefined;
  #host: Host;
  #isReady = false;
  #leaving = false;
  /** This host is leaving, and its subnets are empty. */
  #isEmpty = false;
  /** Its Node says nothing of it any more: whatever it says from now on is of another program. */
  #hasLeft = false;
  #listed = false;
  #staleSince: number | undefined;
  #own: Subnets | undefined;
  /** The subnets are being emptied, or are empty. */
  #drain: { readonly over: AbortController; isDone: boolean } | undefined;

  constructor(parts: NodeLeaseParts) {
    this.#parts = parts;
    this.#host = parts.host;
    const { node: own, annotationPrefix: prefix } = parts.settings;
    const { wasKnown, store, clock } = parts;
    this.#nodes = new NodeLeases({ own, ...(wasKnown === undefined ? {} : { wasKnown }) });
    this.#writer = new NodeWriter({
      store,
      clock,
      prefix,
      node: () => this.#nodes.own,
      wanted: (node) => this.#wanted(node),
      onRead: (object) => this.#learn(object),
      onChange: () => this.#converge(),
    });
  }

  get view(): HostLeaseState {
    const own = this.#own;
    const { node } = this.#parts.settings;
    return {
      phase: this.#phase,
      subnets: own,
      reserved: own !== undefined,
      troubles: this.#troubles.now(this.#foundTroubles(), this.#parts.clock.monotonic()),
      config: this.#config,
      own: own && { key: nodeKey(node, own), subnets: own },
      listed: this.#listed,
      staleSince: this.#staleSince,
      leaving: this.#leaving,
      time: undefined,
    };
  }

  start(): void {
    const { readConfig: read, refuse = async () => undefined, configEveryMs } = this.#parts;
    this.#netConf = new NetConf({
      read,
      refuse,
      onConfig: (config) => {
        this.#config = config;
        this.#apply(this.#nodes.configure(config));
        this.#converge();
      },
      onTrouble: () => this.#converge(),
      ...(configEveryMs === undefined ? {} : { everyMs: configEveryMs }),
    });
    this.#task(() => this.#follow());
    this.#converge();
  }

  become(host: Host): void {
    this.#host = host;
    this.#converge();
  }

  ready(): void {
    this.#isReady = true;
    this.#converge();
  }

  leave(): void {
    this.#leaving = true;
    // The network is made anew after a join.
    this.#isReady = false;
    this.#converge();
  }

  /** A Node's subnets are its own: there is nothing to take over. */
  join(): void {
    this.#leaving = false;
    this.#isEmpty = false;
    this.#hasLeft = false;
    this.#converge();
  }

  /** A host that is gone keeps no other from its subnets. */
  departed(): void {}

  /** Ends every task. Annotations stay. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    this.#drain?.over.abort();
    await this.#writer[Symbol.asyncDispose]();
    await this.#netConf?.[Symbol.asyncDispose]();
    await Promise.all(this.#tasks);
  }

  #task(body: () => Promise<void>): void {
    const task = guard("kubernetes", body).finally(() => this.#tasks.delete(task));
    this.#tasks.add(task);
  }

  async #follow(): Promise<void> {
    for await (const followed of this.#parts.store.follow(this.#stop.signal))
      guard("kubernetes", () => this.#take(followed));
  }

  #take(followed: Followed): void {
    const { onUnread, clock } = this.#parts;
    const isStale = followed.kind === "stale";
    this.#staleSince = isStale ? (this.#staleSince ?? clock.monotonic()) : undefined;
    onUnread(isStale ? [followed.reason] : []);
    if (followed.kind === "snapshot") {
      this.#listed = true;
      this.#apply(this.#nodes.replace(followed.objects.map((each) => this.#read(each))));
    }
    if (followed.kind === "put") this.#apply(this.#nodes.put(this.#read(followed.object)));
    if (followed.kind === "delete") {
      const { name, uid } = followed.object;
      this.#apply(this.#nodes.delete(name, uid));
    }
    this.#converge();
  }

  #read(object: KubeObject): OverlayNode {
    return readNode(object, this.#parts.settings.annotationPrefix);
  }

  /** This host's Node as it is after a write, or as a read has found it. */
  #learn(object: KubeObject | undefined): void {
    const { node } = this.#parts.settings;
    this.#apply(
      object === undefined ? this.#nodes.delete(node) : this.#nodes.put(this.#read(object)),
    );
  }

  #apply(events: readonly StoreEvent[]): void {
    const { revision } = this.#nodes;
    const changes = this.registry.apply({ kind: "changes", revision, events });
    if (changes.length > 0) this.#parts.onLeases(changes, this.registry);
  }

  /** What Kubernetes has given this host, if the overlay can use it. */
  get #offered(): Subnets | undefined {
    const { own } = this.#nodes;
    if (own === undefined || this.#config === undefined) return undefined;
    const subnets = subnetsIn(own, this.#config);
    return subnets !== undefined && outside(subnets, this.#config) === undefined
      ? subnets
      : undefined;
  }

  /** Whether other hosts are notified of this one, and not of flanneld on it. */
  get #isAnnotated(): boolean {
    const { own } = this.#nodes;
    return own !== undefined && takesPart(own.annotations) && isDataOf(own.annotations, this.#host);
  }

  /** Brings what this host has closer to what it is to have, and reports it. */
  #converge(): void {
    if (this.#stop.signal.aborted) return;
    const offered = this.#offered;
    if (this.#own === undefined) {
      // What an earlier podnetd had is emptied before it is given up.
      const isLeft = this.#isEmpty || this.#hasLeft || !this.#isAnnotated;
      if (!this.#leaving || !isLeft) this.#own = offered;
    }
    if (this.#own !== undefined) this.#drainIfWanted(this.#own, offered);
    this.#apply(this.#nodes.keep(this.#own));
    const { own } = this.#nodes;
    const gives = this.#leaving && this.#own === undefined && !this.#writer.isWriting;
    if (gives && own !== undefined && this.#config !== undefined)
      this.#hasLeft ||= this.#wanted(own) === undefined;
    this.#writer.wake();
    this.#parts.onState(this.view);
  }

  #drainIfWanted(own: Subnets, offered: Subnets | undefined): void {
    const moves = offered !== undefined && !sameSubnets(own, offered);
    if (!this.#leaving && !moves) {
      this.#drain?.over.abort();
      this.#drain = undefined;
      return;
    }
    if (this.#drain?.isDone === true) {
      this.#drain = undefined;
      this.#own = this.#leaving ? undefined : offered;
      this.#isEmpty = this.#leaving;
      return;
    }
    if (this.#drain !== undefined) return;
    const drain = { over: new AbortController(), isDone: false };
    this.#drain = drain;
    this.#task(async () => {
      try {
        await this.#parts.drain(own, drain.over.signal);
      } catch {
        // They are to stay after all.
        if (this.#drain === drain) this.#drain = undefined;
        return;
      }
      drain.isDone = true;
      if (this.#drain === drain) this.#converge();
    });
  }

  #wanted(node: OverlayNode): ReturnType<typeof wantedOf> {
    return wantedOf(node, {
      leaving: this.#leaving,
      hasLeft: this.#hasLeft,
      has: this.#own,
      host: this.#host,
      config: this.#config,
      isReady: this.#isReady,
      writesCondition: this.#parts.settings.writesCondition,
    });
  }

  get #phase(): LeasePhase {
    const known = this.#listed && this.#config !== undefined;
    if (this.#own === undefined) {
      if (!known) return "waiting";
      if (!this.#leaving) return "acquiring";
      const says = this.#isAnnotated || this.#writer.isWriting;
      return says && !this.#hasLeft ? "draining" : "left";
    }
    if (this.#drain !== undefined) return "draining";
    return this.#nodes.own === undefined ? "lost" : "held";
  }

  #foundTroubles(): ReturnType<typeof nodeTroubles> {
    const { node, netConf: file } = this.#parts.settings;
    const trouble = this.#netConf?.trouble;
    const own = this.#nodes.own;
    return nodeTroubles({
      node,
      own,
      config: this.#config,
      listed: this.#listed,
      refused: this.#nodes.refused,
      wanted: own && this.#wanted(own),
      failure: this.#writer.failure,
      ofConfig:
        trouble === undefined
          ? undefined
          : trouble instanceof PodnetError
            ? { kind: "config-invalid", error: trouble }
            : { kind: "config-missing", file },
    });
  }
}
