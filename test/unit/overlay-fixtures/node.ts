import type { Host } from "../../../overlay/claim.ts";
import type { OverlayConfig } from "../../../overlay/flannel/config.ts";
import { configKey, leasesPrefix } from "../../../overlay/flannel/prefix.ts";
import {
  beginning,
  type LeaseCommand,
  type LeaseEvent,
  type LeaseSettings,
  type LeaseState,
} from "../../../overlay/lease-state.ts";
import { step } from "../../../overlay/lease.ts";
import { Peers } from "../../../overlay/peers.ts";
import { Registry } from "../../../overlay/registry.ts";
import type { Committed, LeaseTransaction, StoreUpdate } from "../../../overlay/store.ts";
import type { Random } from "../../sim/random.ts";
import type { FakeEtcd } from "./fake-etcd.ts";
import { Violation } from "./invariants.ts";

/** What a node is in. */
export interface Surroundings {
  readonly etcd: FakeEtcd;
  readonly random: Random;
  readonly now: () => number;
  /** Does something later. */
  readonly after: (ms: number, body: () => void) => void;
  /** Told before a transaction of a node is done, and of the configuration by which it was made. */
  readonly onCommit: (
    node: Node,
    transaction: LeaseTransaction,
    config: OverlayConfig | undefined,
  ) => void;
  /** Told when a node has been told of the store, and after each of its steps. */
  readonly onUpdate: (node: Node, update: StoreUpdate) => void;
  readonly onStep: (node: Node, before: LeaseState) => void;
}

/** How long a call may take, milliseconds. */
const deadlineMs = 3000;

/** A host of podnet: its lease, what it knows, and a network to etcd that loses and delays. */
export class Node {
  readonly name: string;
  readonly settings: LeaseSettings;
  readonly #around: Surroundings;
  state: LeaseState;
  registry = new Registry();
  peers = new Peers("vxlan");
  alive = true;
  /** Since when etcd has been within reach; undefined when it is not. */
  connectedSince: number | undefined = 0;
  /** Of its calls, when each was made. */
  readonly calls: number[] = [];
  readonly emptied = new Set<string>();
  /** All it has ever had. */
  readonly addresses = new Set<string | undefined>();
  #life = 0;
  #followed: bigint | undefined;
  #woken: number | undefined;
  #delivering = false;
  #draining: LeaseCommand | undefined;
  #configText: string | undefined;

  constructor(name: string, settings: LeaseSettings, host: Host, around: Surroundings) {
    this.name = name;
    this.settings = settings;
    this.#around = around;
    this.state = beginning(settings, host, undefined);
  }

  start(): void {
    this.tell({ kind: "tick" });
    this.#deliver();
  }

  /** The daemon is killed and started again; `remembers`: it still has its subnet.env. */
  restart(remembers: boolean): void {
    const previous = remembers ? this.state.previous : undefined;
    this.#life++;
    this.#followed = undefined;
    this.#configText = undefined;
    this.#delivering = false;
    this.registry = new Registry();
    this.peers = new Peers("vxlan");
    this.emptied.clear();
    this.state = beginning(this.settings, this.state.host, previous);
    this.start();
  }

  connect(connected: boolean): void {
    if (connected === (this.connectedSince !== undefined)) return;
    this.connectedSince = connected ? this.#around.now() : undefined;
    if (connected) this.#deliver();
    else this.#later(this.#around.random.below(3000), () => this.tell({ kind: "stale" }));
  }

  /** Something has changed in the store. */
  noticeChange(): void {
    this.#deliver();
  }

  tell(event: LeaseEvent): void {
    const { random, now } = this.#around;
    const before = this.state;
    const { publicIp, publicIp6 } = event.kind === "host" ? event.host : before.host;
    this.addresses.add(publicIp).add(publicIp6);
    const next = step(before, event, this.registry, { at: now(), draw: random.next() });
    this.state = next.state;
    this.peers.own(next.state.own?.key, (key) => this.registry.get(key));
    this.#around.onStep(this, before);
    // What comes to live in other subnets, or in the same ones again, is there until it is emptied
    // anew.
    if (next.state.own?.key !== before.own?.key) this.emptied.clear();
    for (const command of next.commands) this.#run(command);
    this.#wakeAt(next.state.wakeAt);
  }

  #wakeAt(at: number | undefined): void {
    this.#woken = at;
    if (at !== undefined)
      this.#later(Math.max(0, at - this.#around.now()), () => {
        if (this.#woken === at) this.tell({ kind: "tick" });
      });
  }

  #run(command: LeaseCommand): void {
    const { etcd, random } = this.#around;
    switch (command.kind) {
      case "drain":
        this.#draining = command;
        return this.#later(random.below(60_000), () => {
          // (One that was called off says nothing, whatever is drained by then.)
          if (this.#draining !== command || this.state.drain !== "asked") return;
          this.emptied.add(JSON.stringify(command.subnets));
          this.tell({ kind: "drained" });
        });
      case "undrain":
        this.#draining = undefined;
        return this.emptied.clear();
      case "revoke":
        return this.#call(
          () => etcd.revoke(command.grant),
          () => {},
          () => {},
        );
      case "config":
        return this.#call(
          () => this.#configNow(),
          (event) => this.tell({ ...event, request: command.id }),
          (error) => this.tell({ kind: "failed", request: command.id, error }),
        );
      case "grant":
        return this.#call(
          () => etcd.grant(command.grant, this.settings.ttlSeconds),
          () => this.tell({ kind: "answered", request: command.id }),
          (error) => this.tell({ kind: "failed", request: command.id, error }),
        );
      case "cancel":
        return this.#call(
          () => etcd.revoke(command.grant),
          () => this.tell({ kind: "answered", request: command.id }),
          (error) => this.tell({ kind: "failed", request: command.id, error }),
        );
      case "commit": {
        const { config } = this.state;
        return this.#call(
          () => {
            this.#around.onCommit(this, command.transaction, config);
            return etcd.commit(command.transaction);
          },
          (committed) => this.#committed(command.id, command.transaction, committed),
          (error) => this.tell({ kind: "failed", request: command.id, error }),
        );
      }
    }
  }

  #committed(request: number, transaction: LeaseTransaction, committed: Committed): void {
    this.peers.apply(this.registry.learn(transaction, committed));
    this.tell({ kind: "committed", request, committed });
  }

  #configNow(): LeaseEvent & { kind: "config" } {
    const { etcd } = this.#around;
    const at = etcd.keys.get(configKey(this.settings.prefix));
    return { kind: "config", text: at?.value, revision: etcd.revision };
  }

  /** A call that may be lost on its way there or back, or come late. */
  #call<T>(call: () => T, done: (value: T) => void, failed: (error: Error) => void): void {
    const { random, after } = this.#around;
    this.calls.push(this.#around.now());
    let answered = false;
    const once = (body: () => void): void => {
      if (answered) return;
      answered = true;
      body();
    };
    this.#later(deadlineMs, () => once(() => failed(new Error("deadline"))));
    if (this.connectedSince === undefined) return;
    const weird = random.chance(0.06);
    // What was sent is done even if whoever sent it is no more.
    after(weird ? random.below(2 * deadlineMs) : 1 + random.below(20), () => {
      if (weird && random.chance(0.3)) return;
      let value: T;
      try {
        if (this.#around.etcd.refusing) throw new Error("no space");
        value = call();
      } catch (error) {
        if (error instanceof Violation) throw error;
        return this.#later(1, () => once(() => failed(error as Error)));
      }
      if (weird && random.chance(0.5)) return;
      this.#later(1 + random.below(weird ? 2000 : 20), () => once(() => done(value)));
    });
  }

  /** Of this life of the daemon alone. */
  #later(ms: number, body: () => void): void {
    const life = this.#life;
    this.#around.after(ms, () => {
      if (life === this.#life && this.alive) body();
    });
  }

  #deliver(): void {
    if (this.#delivering || this.connectedSince === undefined) return;
    this.#delivering = true;
    const prefix = leasesPrefix(this.settings.prefix);
    this.#later(1 + this.#around.random.below(50), () => {
      this.#delivering = false;
      if (this.connectedSince === undefined) return;
      const { etcd } = this.#around;
      const changes =
        this.#followed === undefined ? undefined : etcd.changes(prefix, this.#followed);
      const update = changes ?? etcd.snapshot(prefix);
      this.#followed = update.revision;
      this.peers.apply(this.registry.apply(update));
      this.#around.onUpdate(this, update);
      const config = this.#configNow();
      if (config.text !== this.#configText) this.tell(config);
      this.#configText = config.text;
      this.tell({ kind: "leases" });
    });
  }
}
