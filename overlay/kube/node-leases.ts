import { type Cidr, lengthOf, type Mac, overlaps } from "../../core/address.ts";
import type { OverlayConfig } from "../flannel/config.ts";
import { type Subnets, subnetsText } from "../flannel/key.ts";
import { attributesOf, parseLeaseValue } from "../flannel/value.ts";
import type { StoreEvent } from "../store.ts";
import { leaseTextOf, takesPart } from "./annotations.ts";
import type { OverlayNode } from "./node.ts";
import { Occupied } from "./occupied.ts";

/** What a Node says it has, as a lease. */
interface Claim {
  readonly name: string;
  /** The lease's key, which ends as a key in etcd does. */
  readonly key: string;
  readonly text: string;
  readonly networks: readonly Cidr[];
  readonly macs: readonly Mac[];
}

/** A claim, the reason why there is none, or undefined for a Node that does not take part. */
type Judged = Claim | string | undefined;

export interface NodeLeasesOptions {
  /** The name of this host's Node, which comes first. */
  readonly own: string;
  /** Whether an earlier podnetd knew a host, by a subnet and the MAC of its tunnel. */
  readonly wasKnown?: (network: Cidr, macs: readonly Mac[]) => boolean;
}

/** The key of a Node's lease. */
export const nodeKey = (name: string, subnets: Subnets): string =>
  `nodes/${name}/${subnetsText(subnets)}`;

/** The name of the Node whose lease has the key. */
export const nodeOfKey = (key: string): string => key.split("/")[1] ?? "";

/** The podCIDRs of the families that the overlay has; undefined if it has none of them. */
export function subnetsIn(
  { podCidrs }: Pick<OverlayNode, "podCidrs">,
  { v4, v6 }: Pick<OverlayConfig, "v4" | "v6">,
): Subnets | undefined {
  const four = v4 && podCidrs?.v4;
  const six = v6 && podCidrs?.v6;
  if (four !== undefined) return { v4: four, v6: six };
  return six && { v4: undefined, v6: six };
}

/**
 * Why subnets cannot be part of the overlay: they are not within its network, or are so large that
 * they would leave others no room (flannel's rule for a subnet's length). Undefined if they can.
 */
export function outside(
  subnets: Subnets,
  { v4, v6 }: Pick<OverlayConfig, "v4" | "v6">,
): string | undefined {
  for (const [subnet, space] of [
    [subnets.v4, v4],
    [subnets.v6, v6],
  ] as const) {
    if (subnet === undefined || space === undefined) continue;
    if (!overlaps(subnet, space.network) || lengthOf(subnet) < lengthOf(space.network))
      return `${subnet} is not in ${space.network}`;
    if (lengthOf(subnet) < lengthOf(space.network) + 2)
      return `${subnet} is more than a quarter of ${space.network}`;
  }
  return undefined;
}

/**
 * Decides which Nodes are hosts of the overlay. Whoever may write into one Node could otherwise
 * lead the packets of others to itself, by the podCIDR or the MAC of another Node. So what a Node
 * has, no other Node is given: who had it first keeps it, and of those that come together the Node
 * that Kubernetes made first. Pure.
 */
export class NodeLeases {
  readonly #options: NodeLeasesOptions;
  #config: OverlayConfig | undefined;
  readonly #nodes = new Map<string, OverlayNode>();
  readonly #admitted = new Map<string, Claim>();
  readonly #refused = new Map<string, string>();
  readonly #networks = new Occupied();
  readonly #macs = new Map<Mac, string>();
  #revision = 0n;
  /** What pods of this host have, whatever its Node says. */
  #kept: readonly Cidr[] = [];

  constructor(options: NodeLeasesOptions) {
    this.#options = options;
  }

  /** This host's Node. */
  get own(): OverlayNode | undefined {
    return this.#nodes.get(this.#options.own);
  }

  /** Nodes that want to take part and are given no routes, with the reasons. */
  get refused(): ReadonlyMap<string, string> {
    return this.#refused;
  }

  /** Counts the changes; grows with each. */
  get revision(): bigint {
    return this.#revision;
  }

  /** Sets the overlay's configuration. */
  configure(config: OverlayConfig): StoreEvent[] {
    this.#config = config;
    const gone = [...this.#admitted.values()].filter(({ name, key, text }) => {
      const judged = this.#judge(this.#nodes.get(name));
      return !isClaim(judged) || judged.key !== key || judged.text !== text;
    });
    const dropped = gone.flatMap((claim) => this.#drop(claim));
    return [...dropped, ...this.#look(this.#nodes.values())];
  }

  /** Sets all Nodes. */
  replace(nodes: readonly OverlayNode[]): StoreEvent[] {
    const names = new Set(nodes.map(({ name }) => name));
    const gone = [...this.#nodes.keys()].filter((name) => !names.has(name));
    const dropped = gone.flatMap((name) => this.#forget(name));
    for (const node of nodes) this.#nodes.set(node.name, node);
    return [...dropped, ...this.#look(nodes), ...this.#lookAgain()];
  }

  /** Sets the subnets that pods of this host have: no other Node is sent their packets. */
  keep(subnets: Subnets | undefined): StoreEvent[] {
    const kept = [subnets?.v4, subnets?.v6].filter((each) => each !== undefined);
    if (kept.length === this.#kept.length && kept.every((each) => this.#kept.includes(each)))
      return [];
    this.#kept = kept;
    const { own } = this.#options;
    const evicted = [...this.#admitted.values()].filter(
      ({ name, networks }) => name !== own && networks.some((each) => this.#isKept(each)),
    );
    const dropped = evicted.flatMap((claim) => {
      this.#refused.set(claim.name, keptText);
      return this.#drop(claim);
    });
    return [...dropped, ...this.#lookAgain()];
  }

  #isKept(network: Cidr): boolean {
    return this.#kept.some((each) => overlaps(each, network));
  }

  put(node: OverlayNode): StoreEvent[] {
    this.#nodes.set(node.name, node);
    const events = this.#look([node]);
    return events.length === 0 ? events : [...events, ...this.#lookAgain()];
  }

  /** `uid`: of the Node that is gone, which another of its name may have followed already. */
  delete(name: string, uid?: string): StoreEvent[] {
    if (uid !== undefined && this.#nodes.get(name)?.uid !== uid) return [];
    const events = this.#forget(name);
    return events.length === 0 ? events : [...events, ...this.#lookAgain()];
  }

  #forget(name: string): StoreEvent[] {
    this.#nodes.delete(name);
    this.#refused.delete(name);
    const claim = this.#admitted.get(name);
    return claim === undefined ? [] : this.#drop(claim);
  }

  /** Something is free again that another may have been refused for. */
  #lookAgain(): StoreEvent[] {
    return this.#look([...this.#refused.keys()].flatMap((name) => this.#nodes.get(name) ?? []));
  }

  /** Judges Nodes in their order; those that have not changed keep what they have. */
  #look(nodes: Iterable<OverlayNode>): StoreEvent[] {
    const judged = [...nodes].map((node) => ({ node, claim: this.#judge(node) }));
    const changed = judged.filter(({ node: { name }, claim }) => {
      const before = this.#admitted.get(name);
      if (!isClaim(claim)) return before !== undefined || this.#refused.get(name) !== claim;
      return before?.key !== claim.key || before.text !== claim.text;
    });
    if (changed.length > 1) changed.sort((a, b) => this.#order(a, b));
    return changed.flatMap(({ node, claim }) => this.#take(node.name, claim));
  }

  #order(a: { node: OverlayNode; claim: Judged }, b: { node: OverlayNode; claim: Judged }): number {
    const rank = ({ node, claim }: { node: OverlayNode; claim: Judged }): number =>
      node.name === this.#options.own ? 0 : isClaim(claim) && this.#isKnown(node, claim) ? 1 : 2;
    return (
      rank(a) - rank(b) ||
      compare(a.node.createdAt, b.node.createdAt) ||
      compare(a.node.uid, b.node.uid)
    );
  }

  /** Whether a host has these subnets already, or had them when an earlier podnetd ran. */
  #isKnown({ name }: OverlayNode, { networks, macs }: Claim): boolean {
    const before = this.#admitted.get(name);
    if (before !== undefined) return networks.every((each) => before.networks.includes(each));
    const { wasKnown = () => false } = this.#options;
    return networks.every((network) => wasKnown(network, macs));
  }

  #take(name: string, judged: Judged): StoreEvent[] {
    const before = this.#admitted.get(name);
    if (before !== undefined) this.#release(before);
    this.#refused.delete(name);
    const holders = isClaim(judged) ? this.#holdersOf(judged) : [];
    // This host's own Node gives way to none: its pods have these addresses.
    const isOwn = name === this.#options.own;
    if (isClaim(judged) && (holders.length === 0 || isOwn)) {
      const evicted = holders.flatMap(({ holder, what }) => {
        const claim = this.#admitted.get(holder);
        this.#refused.set(holder, takenText(what, name));
        return claim === undefined ? [] : this.#drop(claim);
      });
      const removed = before !== undefined && before.key !== judged.key ? [this.#gone(before)] : [];
      return [...evicted, ...removed, this.#admit(judged)];
    }
    const [first] = holders;
    const reason = first === undefined ? judged : takenText(first.what, first.holder);
    if (typeof reason === "string") this.#refused.set(name, reason);
    this.#admitted.delete(name);
    return before === undefined ? [] : [this.#gone(before)];
  }

  #judge(node: OverlayNode | undefined): Judged {
    const config = this.#config;
    if (config === undefined || node === undefined || !takesPart(node.annotations))
      return undefined;
    if (node.tooLong) return "one of its annotations is too long";
    const subnets = subnetsIn(node, config);
    if (subnets === undefined) return "it has no podCIDR that can be read";
    const misplaced = outside(subnets, config);
    if (misplaced !== undefined) return misplaced;
    const networks = [subnets.v4, subnets.v6].filter((each) => each !== undefined);
    if (node.name !== this.#options.own && networks.some((each) => this.#isKept(each)))
      return keptText;
    const text = leaseTextOf(node.annotations);
    const value = text === undefined ? undefined : parseLeaseValue(text);
    const attributes = value && attributesOf(value);
    if (text === undefined || attributes === undefined) return "its annotations cannot be read";
    const macs = attributes.type === "vxlan" ? [attributes.v4?.mac, attributes.v6?.mac] : [];
    return {
      name: node.name,
      key: nodeKey(node.name, subnets),
      text,
      networks,
      macs: macs.filter((mac) => mac !== undefined),
    };
  }

  /** The other Nodes that have a part of what is claimed. */
  #holdersOf({ name, networks, macs }: Claim): { holder: string; what: Taken }[] {
    const ofNetworks = networks
      .flatMap((network) => this.#networks.holders(network))
      .map((holder) => ({ holder, what: "podCIDR" as const }));
    const ofMacs = macs.flatMap((mac) => {
      const holder = this.#macs.get(mac);
      return holder === undefined ? [] : [{ holder, what: "MAC" as const }];
    });
    return [...ofNetworks, ...ofMacs].filter(({ holder }) => holder !== name);
  }

  #admit(claim: Claim): StoreEvent {
    this.#admitted.set(claim.name, claim);
    for (const network of claim.networks) this.#networks.add(network, claim.name);
    for (const mac of claim.macs) this.#macs.set(mac, claim.name);
    const { key, text: value } = claim;
    const revision = ++this.#revision;
    const at = { key, value, grant: 0n, createRevision: revision, modRevision: revision };
    return { kind: "put", at };
  }

  #drop(claim: Claim): StoreEvent[] {
    this.#release(claim);
    this.#admitted.delete(claim.name);
    return [this.#gone(claim)];
  }

  #gone({ key }: Claim): StoreEvent {
    return { kind: "delete", key, modRevision: ++this.#revision };
  }

  #release({ networks, macs }: Claim): void {
    for (const network of networks) this.#networks.delete(network);
    for (const mac of macs) this.#macs.delete(mac);
  }
}

/** What two Nodes cannot both have. */
type Taken = "podCIDR" | "MAC";

const keptText = "its podCIDR has addresses that pods of this host still have";

const takenText = (what: Taken, holder: string): string =>
  what === "MAC"
    ? `its tunnel has the MAC of node ${holder}`
    : `its podCIDR has addresses of node ${holder}`;

const isClaim = (judged: Judged): judged is Claim => typeof judged === "object";

const compare = <T extends number | string>(a: T, b: T): number => (a < b ? -1 : a > b ? 1 : 0);
