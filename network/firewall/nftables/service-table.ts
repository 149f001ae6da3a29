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
const doorsOf = ({ addresses, ports }: ServiceDesired): readonly Door[] =>
  ports.flatMap((port) =>
    addresses.flatMap((address) => {
      const family = familyOf(address);
      const slots = slotsOf(port.backends, family);
      if (slots.length === 0) return [];
      return [{ family, port, slots, chain: choosingChain(port, family, slots.length) }];
    }),
  );

function choosingChain({ number, protocol }: ServicePortDesired, family: Family, count: number) {
  const to = `dnat ${family === 4 ? "ip" : "ip6"} to`;
  const slot = `numgen random mod ${count} offset ${number * mostSlots} map @${protocol}${family}`;
  const rules = [`meta l4proto ${protocols[protocol]} ${to} ${slot}`];
  const digest = createHash("sha256").update(rules.join("\n")).digest("hex");
  return { name: `${chainPrefix}${digest.slice(0, 16)}`, rules };
}

/** The chains that a service's ports lead to. Pure. */
export const serviceChains = (service: ServiceDesired): readonly PolicyChain[] =>
  doorsOf(service).map(({ chain }) => chain);

/**
 * A service's elements. The elements of its network belong to the network: other services need them
 * too. Pure.
 */
export function serviceElements(service: ServiceDesired): Element[] {
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
    ...doorsOf(service).flatMap(({ family, port, chain, slots }): Element[] => {
      const address = addresses.find((each) => familyOf(each) === family);
      const key = `${protocols[port.protocol]} . ${address} . ${port.port}`;
      const value = `jump ${chain.name}`;
      return [
        { set: `services${family}`, key: `"${bridge}" . ${key}`, value, owner },
        { set: `local${family}`, key, value, owner },
        ...slots.map(
          (slot, i): Element => ({
            set: `${port.protocol}${family}`,
            key: `0x${(port.number * mostSlots + i).toString(16)}`,
            value: `${slot.address} . ${slot.port}`,
            owner,
          }),
        ),
      ];
    }),
  ];
}
