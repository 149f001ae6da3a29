import { familyOf, type Ip, ipOf, ipToBigInt, parseIp } from "../../core/address.ts";
import { attachmentFragment } from "../../daemon/containers/attachment-fragment.ts";
import { listAttachments } from "../../daemon/containers/store.ts";
import { listNetworks } from "../../daemon/networks/store.ts";
import { portsOf } from "../../daemon/pods/interfaces/pod-ports.ts";
import { listPods } from "../../daemon/pods/store/pods.ts";
import { PolicyDecisions } from "../../daemon/policies/decisions.ts";
import { listPolicies } from "../../daemon/policies/store.ts";
import type { Database } from "../../daemon/store/database.ts";
import { hostPart } from "../../network/containers/host-part.ts";
import { policedPortsTable } from "../../network/firewall/nftables/policed-ports.ts";
import { policyTable } from "../../network/firewall/nftables/policy-table.ts";
import { bridgeGuard } from "../../network/firewall/nftables/port-guard.ts";
import type { PluggedFragment, PortDesired } from "../../network/model/desired.ts";
import { publishedMark } from "../../network/model/ownership.ts";
import type { Decisions } from "../../policy/compile.ts";
import { decide } from "../../policy/decide.ts";
import type { Fate, Packet } from "./kernel/packet.ts";
import type { World } from "./world.ts";

/** A pod or container at one of its addresses. */
interface Place {
  readonly owner: PluggedFragment;
  readonly port: PortDesired;
  readonly address: Ip;
  /** It runs, and nothing of it is under way. */
  readonly lasts: boolean;
}

/** A connection from one place to another, of which one may be outside. */
interface Probe {
  /** By its ends, and not by their addresses alone: those go from one pod to another. */
  readonly name: string;
  readonly from: Place | undefined;
  readonly to: Place | undefined;
  readonly packet: Packet;
}

/** The host's link to the outside. */
const uplink = "eth0";
const outside = ["198.51.100.7", "203.0.113.9", "2001:db8:5::7"].map((text) => parseIp(text));
const services = [
  { protocol: "tcp", port: 22 },
  { protocol: "tcp", port: 80 },
  { protocol: "udp", port: 53 },
  { protocol: "udp", port: 443 },
  { protocol: "icmp" },
] as const;

/**
 * Compares what the simulated kernel does with connections of pods with what `decide` says, from
 * the rows: see `opened` and `differing`.
 */
export class PolicyWatch {
  readonly #world: World;
  /** What became of each probe when last looked. */
  #fates = new Map<string, Fate>();
  /** What the rows have decided for each owner since the last rest, by its JSON. */
  readonly #past = new Map<string, Map<string, Decisions | undefined>>();
  /** Another program has changed the rules since the last rest. */
  #disturbed = false;

  constructor(world: World) {
    this.#world = world;
  }

  /** To be called after each commit of rows. */
  rowsChanged(db: Database): void {
    if (!this.#isUsed(db)) return;
    const decisions = decisionsBy(db);
    const isFirst = this.#past.size === 0;
    for (const { owner } of this.#places(db)) {
      // With the first policy the watch begins: until then there was none, and the kernel is still
      // as it was.
      if (isFirst) this.#decided(owner, undefined);
      this.#decided(owner, decisions(owner));
    }
    if (isFirst) this.#look(db);
  }

  /** To be called after another program has changed rules. */
  disturbed(): void {
    this.#disturbed = true;
  }

  /**
   * To be called after each change of the kernel: what it has opened although the policies of an
   * end have not allowed it at any time since the last rest.
   */
  opened(db: Database): string[] {
    if (!this.#isUsed(db)) {
      this.#fates.clear();
      this.#past.clear();
      return [];
    }
    const before = this.#fates;
    const found: string[] = [];
    for (const [probe, fate] of this.#look(db)) {
      const { name } = probe;
      if (fate === "closed" || this.#disturbed || this.#wasAllowed(probe)) continue;
      if ((before.get(name) ?? "closed") === "closed")
        found.push(`${name} ${fate}, and no policy has allowed it`);
    }
    return found;
  }

  /** As `differing`, before all is at rest: what others took of rules may be missing still. */
  notInForce(db: Database): string[] {
    return this.#disturbed ? [] : this.differing(db);
  }

  /** What the kernel does otherwise than `decide` says, of pods of which nothing is under way. */
  differing(db: Database): string[] {
    if (!this.#isUsed(db)) return [];
    const decisions = decisionsBy(db);
    return this.#probes(db).flatMap((probe) => {
      if (probe.from?.lasts === false || probe.to?.lasts === false) return [];
      // (What is not plugged is looked at elsewhere: its guest may have released it.)
      if (![probe.from, probe.to].every((end) => end === undefined || this.#isPlugged(end)))
        return [];
      const [is, should] = [this.#fateOf(probe), wanted(probe, decisions)];
      return is === should ? [] : [`${probe.name} ${is}, and policies say: ${should}`];
    });
  }

  /** Elements of owners that have no policy, and chains that decide about none. */
  left(db: Database): string[] {
    const { nftables } = this.#world.kernel;
    const decisions = decisionsBy(db);
    const owners = new Set(
      this.#places(db).flatMap(({ owner, port }) =>
        decisions(owner) === undefined ? [] : [port.alias],
      ),
    );
    const elements = [policyTable, policedPortsTable].flatMap(({ name }) =>
      nftables.elements(name),
    );
    const led = new Set(elements.map((line) => line.split("jump ").at(1)));
    const chains = nftables.chainsOf(policyTable.name).filter((name) => name.startsWith("policy_"));
    return [
      ...elements
        .filter((line) => !owners.has(line.split(" | ")[2] ?? ""))
        .map((line) => `element ${line} is left of a policy`),
      ...chains.filter((name) => !led.has(name)).map((name) => `chain ${name} is left`),
    ];
  }

  /** Nothing is under way: what is allowed now is all that is. */
  rest(db: Database): void {
    this.#disturbed = false;
    this.#past.clear();
    if (!this.#isUsed(db)) return;
    const decisions = decisionsBy(db);
    for (const { owner } of this.#places(db)) this.#decided(owner, decisions(owner));
    this.#look(db);
  }

  #decided(owner: PluggedFragment, now: Decisions | undefined): void {
    const mark = publishedMark(owner);
    const past = this.#past.get(mark) ?? new Map<string, Decisions | undefined>();
    this.#past.set(mark, past.set(JSON.stringify(now) ?? "", now));
  }

  #look(db: Database): (readonly [Probe, Fate])[] {
    const fates = this.#probes(db).map((probe) => [probe, this.#fateOf(probe)] as const);
    this.#fates = new Map(fates.map(([{ name }, fate]) => [name, fate]));
    return fates;
  }

  #wasAllowed({ from, to, packet }: Probe): boolean {
    const allowed = (end: Place | undefined, direction: keyof Decisions): boolean =>
      end === undefined ||
      [...(this.#past.get(publishedMark(end.owner))?.values() ?? [])].some(
        (decisions) => fateBy(decisions, direction, packet) !== "closed",
      );
    return allowed(from, "egress") && allowed(to, "ingress");
  }

  /** A host without policies costs nothing to watch. */
  #isUsed(db: Database): boolean {
    const { names } = this.#world.kernel.nftables;
    return names.includes(policyTable.name) || listPolicies(db).length > 0;
  }

  #probes(db: Database): Probe[] {
    const places = this.#places(db);
    return places.flatMap((place) => [
      ...outside
        .filter((ip) => familyOf(ip) === familyOf(place.address))
        .flatMap((ip) => [...probesOf(place, ip), ...probesOf(ip, place)]),
      ...places
        .filter(({ address, owner }) => sameFamily(address, place.address) && owner !== place.owner)
        .flatMap((other) => probesOf(place, other)),
    ]);
  }

  #places(db: Database): Place[] {
    const networks = listNetworks(db).map(({ definition }) => definition);
    const pods = listPods(db).flatMap(({ plan, before, state }) => {
      const lasts = (state === "running" || state === "paused") && before === undefined;
      // While a change is under way, what was is there, too.
      return [plan, ...(before === undefined ? [] : [before.plan])].flatMap((each) =>
        placesOf(portsOf(each, networks), lasts),
      );
    });
    const containers = listAttachments(db).flatMap(({ plan, state, containerId }) =>
      placesOf(
        hostPart(attachmentFragment(plan, networks, this.#world.config.cni)),
        // (Of one whose namespace has gone there is nothing to say.)
        state === "ready" && this.#world.containers.insideOf(containerId) !== undefined,
      ),
    );
    return [...pods, ...containers];
  }

  #fateOf({ from, to, packet }: Probe): Fate {
    const { links, nftables } = this.#world.kernel;
    if (![from, to].every((end) => end === undefined || this.#isPlugged(end))) return "closed";
    const family = familyOf(packet.source);
    const bridge = links.find(packet.from);
    const filters = family === 4 ? bridge?.nfCallIptables : bridge?.nfCallIp6tables;
    if (packet.from === packet.to && filters !== true) return "passes";
    return nftables.fateOf(packet, policyTable.name);
  }

  /** Its port is on its bridge, and the guard lets it send with this address. */
  #isPlugged({ port, address }: Place): boolean {
    const { links, nftables } = this.#world.kernel;
    const link = links.find(port.tap);
    const bridge = links.find(port.bridge);
    if (link?.up !== true || bridge === undefined || link.master !== bridge.index) return false;
    const six = familyOf(address) === 6;
    const key = six ? `0x${ipToBigInt(address).toString(16)}` : address;
    return nftables.has(
      bridgeGuard.name,
      six ? "addresses6" : "addresses4",
      `"${port.tap}" . ${key}`,
    );
  }
}

const sameFamily = (one: Ip, other: Ip): boolean => familyOf(one) === familyOf(other);

const placesOf = (owner: PluggedFragment, lasts: boolean): Place[] =>
  owner.ports.flatMap((port) =>
    port.guestAddresses.map((prefix) => ({ owner, port, address: ipOf(prefix), lasts })),
  );

function probesOf(from: Place | Ip, to: Place | Ip): Probe[] {
  const [source, destination] = [endOf(from), endOf(to)];
  return services.map((service): Probe => {
    const port = "port" in service ? ` ${service.port}` : "";
    return {
      name: `${source.name} → ${destination.name} ${service.protocol}${port}`,
      from: source.place,
      to: destination.place,
      packet: {
        from: source.link,
        to: destination.link,
        source: source.ip,
        destination: destination.ip,
        ...service,
      },
    };
  });
}

const endOf = (end: Place | Ip) =>
  typeof end === "string"
    ? { name: end, link: uplink, ip: end, place: undefined }
    : {
        name: `${publishedMark(end.owner)} ${end.address}`,
        link: end.port.bridge,
        ip: end.address,
        place: end,
      };

/** By owner, from the rows as they are now. */
function decisionsBy(db: Database): (owner: PluggedFragment) => Decisions | undefined {
  const decisions = new PolicyDecisions(db);
  const known = new Map<string, Decisions | undefined>();
  return (owner) => {
    const mark = publishedMark(owner);
    if (!known.has(mark)) known.set(mark, decisions.of(owner));
    return known.get(mark);
  };
}

/** What is to become of a connection: both ends have a say. */
function wanted(
  { from, to, packet }: Probe,
  decisions: (owner: PluggedFragment) => Decisions | undefined,
): Fate {
  const both = [
    fateBy(from && decisions(from.owner), "egress", packet),
    fateBy(to && decisions(to.owner), "ingress", packet),
  ];
  return both.find((fate) => fate !== "passes") ?? "passes";
}

/** What the decisions about one end say; without any it has no say. */
function fateBy(
  decisions: Decisions | undefined,
  direction: keyof Decisions,
  { protocol, port, source, destination }: Packet,
): Fate {
  if (decisions === undefined) return "passes";
  const ip = direction === "egress" ? destination : source;
  const flow = { ip, protocol, ...(port === undefined ? {} : { port }) };
  return fates[decide(decisions[direction], flow).verdict];
}

/** (What the resolver answers in place of another server is closed.) */
const fates = { allow: "passes", deny: "closed", relay: "relayed", resolver: "closed" } as const;
