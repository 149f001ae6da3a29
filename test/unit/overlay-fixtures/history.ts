import type { Ipv4, Ipv6 } from "../../../core/address.ts";
import type { Host } from "../../../overlay/claim.ts";
import { configKey, parsePrefix } from "../../../overlay/flannel/prefix.ts";
import type { LeaseSettings } from "../../../overlay/lease-state.ts";
import { renewalAt } from "../../../overlay/lease-state.ts";
import { grantOf, type OwnerId } from "../../../overlay/owner.ts";
import { Random } from "../../sim/random.ts";
import { FakeEtcd } from "./fake-etcd.ts";
import {
  checkApart,
  checkCommit,
  checkQuiet,
  checkStep,
  checkUpdate,
  Violation,
} from "./invariants.ts";
import { Node } from "./node.ts";

const prefix = parsePrefix("/net");
const hourMs = 3_600_000;
const settings: LeaseSettings = {
  prefix,
  ttlSeconds: 86_400,
  marginSeconds: 3600,
  misfit: "drain",
};

const configs = {
  v4: [
    '{"Network":"10.77.0.0/24","SubnetLen":28,"Backend":{"Type":"vxlan"}}',
    '{"Network":"10.78.0.0/24","SubnetLen":28,"Backend":{"Type":"vxlan"}}',
  ],
  dual: [
    '{"Network":"10.77.0.0/24","SubnetLen":28,"EnableIPv6":true,"IPv6Network":"fd00:77::/60","Backend":{"Type":"vxlan"}}',
    '{"Network":"10.77.0.0/24","SubnetLen":28,"Backend":{"Type":"vxlan"}}',
  ],
  v6: [
    '{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:77::/60","Backend":{"Type":"vxlan"}}',
    '{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd00:78::/60","Backend":{"Type":"vxlan"}}',
  ],
} as const;

const hostOf = (random: Random, number: number): Host => ({
  owner: (1000 + number) as OwnerId,
  publicIp: `192.168.77.${number + 1}` as Ipv4,
  publicIp6: `fd00:1::${number + 1}` as Ipv6,
  attributes: {
    type: "vxlan",
    v4: { vni: 1, mac: random.mac() },
    v6: { vni: 1, mac: random.mac() },
  },
});

/**
 * One history of several hosts, drawn from a seed: whatever may happen does, and then all is left
 * alone for two days.
 */
export class History {
  readonly #random: Random;
  readonly #etcd = new FakeEtcd(() => this.#now);
  readonly #nodes: Node[];
  readonly #configs: readonly [string, string];
  #events: { at: number; body: () => void }[] = [];
  #now = 0;
  #nextIp = 100;
  steps = 0;

  constructor(seed: number) {
    this.#random = new Random(seed);
    this.#configs = configs[this.#random.weighted({ v4: 3, dual: 1, v6: 1 })];
    this.#etcd.onChange = () => {
      for (const node of this.#nodes) node.noticeChange();
    };
    this.#etcd.onExpire = (grant, keys) => this.#expired(grant, keys);
    this.#nodes = Array.from({ length: 2 + this.#random.below(3) }, (_, i) => this.#node(i));
  }

  #node(number: number): Node {
    return new Node(`host${number}`, settings, hostOf(this.#random, number), {
      etcd: this.#etcd,
      random: this.#random,
      now: () => this.#now,
      after: (ms, body) => this.#after(ms, body),
      onCommit: (node, transaction, config) => checkCommit(node, transaction, this.#etcd, config),
      onUpdate: (node, update) => checkUpdate(node, { etcd: this.#etcd }, update),
      onStep: (node, before) => {
        checkStep(node, before, this.#now);
        if (before.own !== node.state.own) checkApart(this.#nodes, this.#etcd);
      },
    });
  }

  run(): void {
    if (this.#random.chance(0.7)) this.#etcd.put(configKey(prefix), this.#configs[0], 0n);
    for (const node of this.#nodes) this.#after(this.#random.below(2000), () => node.start());
    const actions = 5 + this.#random.below(25);
    let at = 500;
    for (let i = 0; i < actions; i++) {
      at += this.#random.below(this.#random.chance(0.5) ? 200 : 20_000);
      this.#at(at, () => this.#act());
      if (!this.#random.chance(0.15)) continue;
      // (A day during which a host tries every few seconds would be long to watch.)
      this.#at(at, () => this.#calm());
      at += this.#random.below(20 * hourMs);
    }
    this.#at(at + 10_000, () => this.#calm());
    this.#until(at + 50 * hourMs);
    for (const node of this.#nodes) checkQuiet(node, this.#nodes, this.#etcd);
  }

  #after(ms: number, body: () => void): void {
    this.#at(this.#now + ms, body);
  }

  #at(at: number, body: () => void): void {
    const behind = this.#events.findLastIndex((event) => event.at <= at) + 1;
    this.#events.splice(behind, 0, { at, body });
  }

  #until(end: number): void {
    for (;;) {
      const next = this.#events[0]?.at ?? Infinity;
      const expiry = this.#etcd.nextEnd;
      if (Math.min(next, expiry) > end) break;
      this.steps++;
      if (this.steps > 20_000) throw new Error("It does not come to rest");
      if (expiry <= next) {
        this.#now = Math.max(this.#now, expiry);
        this.#etcd.expire();
      } else {
        this.#now = Math.max(this.#now, next);
        this.#events.shift()?.body();
      }
    }
    this.#now = end;
  }

  /** A lease that its host could have renewed must not run out. */
  #expired(grant: bigint, keys: readonly string[]): void {
    for (const node of this.#nodes) {
      const { own, troubles, wish } = node.state;
      if (own === undefined || own.grant !== grant || !keys.includes(own.key)) continue;
      const due = renewalAt(settings, own.grantedAt);
      const reached = node.connectedSince !== undefined && node.connectedSince <= due;
      const kept = !troubles.some(({ kind }) => kind === "misfit" || kind === "shared");
      if (reached && kept && wish === "join")
        throw new Violation(`in time: ${node.name} let ${keys.join(", ")} run out`);
    }
  }

  #act(): void {
    const random = this.#random;
    const node = random.pick(this.#nodes);
    const etcd = this.#etcd;
    const ours = node.state.own?.key;
    const act = random.weighted({
      disconnect: 4,
      connect: 4,
      outage: 2,
      recover: 2,
      compact: 3,
      leader: 2,
      restart: 4,
      deleted: 3,
      flannel: 4,
      garbage: 2,
      mac: 2,
      address: 2,
      config: 2,
      badConfig: 1,
      reserve: 2,
      unreserve: 1,
      leave: 2,
      join: 2,
      rivals: 2,
      stray: 2,
      noSpace: 2,
    });
    switch (act) {
      case "disconnect":
        return node.connect(false);
      case "connect":
        return node.connect(true);
      case "outage":
        return this.#nodes.forEach((each) => each.connect(false));
      case "recover":
        return this.#nodes.forEach((each) => each.connect(true));
      case "compact":
        return etcd.compact();
      case "leader":
        return etcd.leaderChange();
      case "restart":
        return node.restart(random.chance(0.7));
      case "deleted":
        return ours === undefined ? undefined : etcd.delete(ours);
      case "flannel":
        return this.#flannel(`10.77.0.${16 * (1 + random.below(15))}-28`);
      case "garbage":
        return etcd.put(`${prefix}/subnets/${random.pick(["junk", "10.77.0.1-99"])}`, "?", 0n);
      case "mac":
        return this.#newMac(node);
      case "address":
        return node.tell({ kind: "host", host: { ...node.state.host, ...this.#newAddress() } });
      case "config":
        return etcd.put(configKey(prefix), random.pick(this.#configs), 0n);
      case "badConfig":
        return etcd.put(configKey(prefix), random.pick(["{", '{"Network":"x"}']), 0n);
      case "reserve":
      case "unreserve": {
        const at = ours === undefined ? undefined : etcd.keys.get(ours);
        if (at !== undefined && at.value === node.state.own?.text)
          etcd.put(at.key, at.value, act === "reserve" ? 0n : etcd.grant(undefined, 86_400));
        return;
      }
      case "leave":
        return node.tell({ kind: "leave" });
      case "join":
        return node.tell({ kind: "join" });
      case "noSpace":
        etcd.refusing = !etcd.refusing;
        return;
      case "stray": {
        // Of a former life, which ended between one write and the next.
        const { own, host } = node.state;
        const key = `${prefix}/subnets/10.77.0.${16 * (1 + random.below(15))}-28`;
        const grant = grantOf(host.owner, random.next());
        if (own === undefined || etcd.keys.has(key) || etcd.grants().includes(grant)) return;
        return etcd.put(key, own.text, etcd.grant(grant, 86_400));
      }
      case "rivals":
        // Somebody is faster at what the host had, while the host is away.
        if (ours === undefined) return;
        etcd.delete(ours);
        this.#flannel(ours.slice(ours.lastIndexOf("/") + 1));
        return random.chance(0.5) ? this.#newMac(node) : undefined;
    }
  }

  /** A host of flannel's comes, with a lease of a day. */
  #flannel(name: string): void {
    const key = `${prefix}/subnets/${name}`;
    if (this.#etcd.keys.has(key)) return;
    const publicIp = `192.168.78.${1 + this.#random.below(200)}`;
    const data = `{"VNI":1,"VtepMAC":"${this.#random.mac()}"}`;
    const value = `{"PublicIP":"${publicIp}","PublicIPv6":null,"BackendType":"vxlan","BackendData":${data}}`;
    this.#etcd.put(key, value, this.#etcd.grant(undefined, 86_400));
  }

  #newMac(node: Node): void {
    const host = { ...hostOf(this.#random, 0), ...addressesOf(node.state.host) };
    node.tell({ kind: "host", host });
  }

  #newAddress(): Pick<Host, "publicIp" | "publicIp6"> {
    const number = this.#nextIp++;
    return {
      publicIp: `192.168.77.${number}` as Ipv4,
      publicIp6: `fd00:1::${number}` as Ipv6,
    };
  }

  /** Everything works again, and nobody does anything any more. */
  #calm(): void {
    this.#etcd.refusing = false;
    this.#etcd.put(configKey(prefix), this.#configs[0], 0n);
    for (const node of this.#nodes) node.connect(true);
  }
}

const addressesOf = ({ owner, publicIp, publicIp6 }: Host): Omit<Host, "attributes"> => ({
  owner,
  publicIp,
  publicIp6,
});
