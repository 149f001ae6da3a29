import { createHash } from "node:crypto";
import { type Family, familyOf } from "../../../core/address.ts";
import { type Element, type SetName, serviceSets } from "../../model/nftables-sets.ts";
import { networkMark, serviceMark } from "../../model/ownership.ts";
import type { PolicyChain } from "../../model/rules.ts";
import {
  mostSlots,
  type ServiceDesired,
  type ServicePortDesired,
  slotsOf,
  stickySlots,
} from "../../model/service.ts";
import type { TableModel } from "./base.ts";
import { refuse } from "./shares-table.ts";

/** Chains that choose a backend are named so. */
const chainPrefix = "service_";

/**
 * Services, with either driver. The first packet of a connection to a service's address and port is
 * led to the chain of that port, which chooses a slot by chance and translates the destination to
 * the slot's backend. conntrack translates the packets that follow, in both directions: so a
 * connection stays with its backend, whatever becomes of the service.
 *
 * A service is reached from the bridge of its network, and by this host itself. Nothing is accepted
 * here: policies and the rules of the driver decide about the translated packet, as they would
 * about one that a pod has sent to the backend itself.
 *
 * A backend on the client's own subnet would answer the client directly, by its own address: the
 * source becomes the host's. A packet that still has the service's address when it is forwarded has
 * met no port, or a port without a backend: it is refused, and never leaves for another router.
 */
export const serviceTable: TableModel = {
  name: "inet podnet_services",
  sets: Object.keys(serviceSets) as SetName[],
  chains: {
    prerouting: {
      // Before published ports, of either driver, and before names of connections are read.
      hook: { type: "nat", hook: "prerouting", priority: -115 },
      rules: [
        "iifname . meta l4proto . ip daddr . th dport vmap @services4",
        "iifname . meta l4proto . ip6 daddr . th dport vmap @services6",
      ],
    },
    output: {
      hook: { type: "nat", hook: "output", priority: -115 },
      rules: [
        "meta l4proto . ip daddr . th dport vmap @local4",
        "meta l4proto . ip6 daddr . th dport vmap @local6",
      ],
    },
    postrouting: {
      hook: { type: "nat", hook: "postrouting", priority: 95 },
      rules: [
        "ct status dnat ct original ip daddr @virtual4 ip saddr . oifname @own4 masquerade",
        "ct status dnat ct original ip6 daddr @virtual6 ip6 saddr . oifname @own6 masquerade",
      ],
    },
    forward: {
      hook: { type: "filter", hook: "forward", priority: -10 },
      rules: ["ip daddr @virtual4 goto unmet", "ip6 daddr @virtual6 goto unmet"],
    },
    sent: {
      hook: { type: "filter", hook: "output", priority: 0 },
      rules: ["ip daddr @virtual4 goto unmet", "ip6 daddr @virtual6 goto unmet"],
    },
    unmet: { rules: refuse },
  },
  owns: chainPrefix,
};

/** Numbers, for names would be looked up in /etc/protocols. */
const protocols = { tcp: 6, udp: 17, sctp: 132 } as const;

/** A port of a service in one family, with the chain that chooses among its slots. */
interface Door {
  readonly family: Family;
  readonly port: ServicePortDesired;
  readonly chain: PolicyChain;
  readonly slots: ReturnType<typeof slotsOf>;
}

/** None for a family without a slot. */
const doorsOf = ({ addresses, ports, sticky = false }: ServiceDesired): readonly Door[] =>
  ports.flatMap((port) =>
    addresses.flatMap((address) => {
      const family = familyOf(address);
      const slots = (sticky ? stickySlots : slotsOf)(port.backends, family);
      if (slots.length === 0) return [];
      // (Without a seed the kernel chooses another one for each rule.)
      const by = sticky ? `jhash ${family === 4 ? "ip" : "ip6"} saddr` : "numgen random";
      const draw = `${by} mod ${slots.length}${sticky ? " seed 0x1" : ""}`;
      return [{ family, port, slots, chain: choosingChain(port, family, draw) }];
    }),
  );

function choosingChain({ number, protocol }: ServicePortDesired, family: Family, draw: string) {
  const to = `dnat ${family === 4 ? "ip" : "ip6"} to`;
  const slot = `${draw} offset ${number * mostSlots} map @${protocol}${family}`;
  const rules = [`meta l4proto ${protocols[protocol]} ${to} ${slot}`];
  const digest = createHash("sha256").update(rules.join("\n")).digest("hex");
  return { name: `${chainPrefix}${digest.slice(0, 16)}`, rules };
}

/** The chains that a service's ports lead to. Pure. */
export const serviceChains = (service: ServiceDesired): readonly PolicyChain[] =>
  doorsOf(service).map(({ chain }) => chain);

/**
 * Elements of slots as they were made last: of a service with a thousand backends most stay when
 * one changes.
 */
export class KnownSlots {
  #known = new Map<string, readonly SlotElement[]>();

  /** The elements of these services. The slots of all others are forgotten. */
  ofAll(services: readonly ServiceDesired[]): Element[] {
    const now = new Map<string, readonly SlotElement[]>();
    const elements = services.flatMap((service) =>
      serviceElements(service, (owner, { family, port, slots }) => {
        const door = `${owner} ${port.protocol}${family} ${port.number}`;
        const before = this.#known.get(door);
        const made = slots.map((slot, i): SlotElement => {
          const was = before?.[i];
          const same = was?.slot.address === slot.address && was.slot.port === slot.port;
          return same ? was : { slot, element: slotElement(owner, family, port, slot, i) };
        });
        now.set(door, made);
        return made.map(({ element }) => element);
      }),
    );
    this.#known = now;
    return elements;
  }
}

interface SlotElement {
  readonly slot: Door["slots"][number];
  readonly element: Element;
}

const slotElement = (
  owner: string,
  family: Family,
  { protocol, number }: ServicePortDesired,
  slot: SlotElement["slot"],
  i: number,
): Element => ({
  set: `${protocol}${family}`,
  key: `0x${(number * mostSlots + i).toString(16)}`,
  value: `${slot.address} . ${slot.port}`,
  owner,
});

/**
 * A service's elements. The elements of its network belong to the network: other services need them
 * too. Pure.
 */
export function serviceElements(
  service: ServiceDesired,
  slotsOfDoor = (owner: string, { family, port, slots }: Door): readonly Element[] =>
    slots.map((slot, i) => slotElement(owner, family, port, slot, i)),
): Element[] {
  const { name, network, bridge, subnets, addresses } = service;
  const owner = serviceMark(name);
  return [
    ...subnets.map(
      (subnet): Element => ({
        set: `own${familyOf(subnet)}`,
        key: `${subnet} . "${bridge}"`,
        owner: networkMark(network),
      }),
    ),
    ...addresses.map((key): Element => ({ set: `virtual${familyOf(key)}`, key, owner })),
    ...doorsOf(service).flatMap((door): Element[] => {
      const { family, port, chain } = door;
      const address = addresses.find((each) => familyOf(each) === family);
      const key = `${protocols[port.protocol]} . ${address} . ${port.port}`;
      const value = `jump ${chain.name}`;
      return [
        { set: `services${family}`, key: `"${bridge}" . ${key}`, value, owner },
        { set: `local${family}`, key, value, owner },
        ...slotsOfDoor(owner, door),
      ];
    }),
  ];
}
