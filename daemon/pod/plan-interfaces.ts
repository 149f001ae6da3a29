import type { InterfaceSpec, PodSpec } from "../../api/pod-spec.ts";
import {
  contains,
  familyOf,
  type Ip,
  type IpPrefix,
  ipOf,
  lengthOf,
  type Mac,
  withLength,
} from "../../core/address.ts";
import { PodnetError } from "../../core/errors.ts";
import { type IfName, parseIfName } from "../../core/names.ts";
import { checkPortRoom } from "../../network/port-limit.ts";
import { defaultGateways } from "./plan-gateways.ts";
import type { InterfacePlan } from "./pod-plan.ts";
import type { NetworkSnapshot, Snapshot, SubnetSnapshot } from "./snapshot.ts";

/** The tap of an interface: the pod's id and one base-36 digit, 15 bytes in all. */
export function tapName(podId: string, position: number): IfName {
  return parseIfName(`pn${podId}${position.toString(36)}`);
}

/** Decides addresses, MACs, names and slots of all interfaces; there are none where the driver brings the network. */
export function planInterfaces(spec: PodSpec, snapshot: Snapshot): InterfacePlan[] {
  const { nicSlots, bringsOwnNetwork } = snapshot.driver;
  if (bringsOwnNetwork) {
    refuseChoices(spec);
    return [];
  }
  if (spec.interfaces.length > nicSlots) {
    throw new PodnetError(
      "NIC_SLOTS_FULL",
      `${spec.interfaces.length} interfaces are more than a machine's ${nicSlots} slots`,
      {
        field: "interfaces",
        hint: `Ask for at most ${nicSlots} interfaces`,
      },
    );
  }
  const choice = new Choice(spec, snapshot);
  const drafts = spec.interfaces.map((wanted, position) => {
    const field = `interfaces[${position}]`;
    const network = findNetwork(wanted, snapshot, field);
    return {
      wanted,
      position,
      field,
      network,
      addresses: choice.addresses(wanted, network, field),
    };
  });
  checkRoom(spec, snapshot);
  const gateways = defaultGateways(spec, drafts);
  return drafts.map(({ wanted, position, field, network, addresses }) => {
    const gateway = gateways.get(position);
    return {
      position,
      network: network.name,
      bridge: network.bridge,
      addresses,
      ...(gateway === undefined ? {} : { gateway }),
      mtu: planMtu(wanted, network, addresses, field),
      guestName: choice.guestName(wanted, position, field),
      nic: {
        nicId: `nic${position}`,
        netdevId: `net${position}`,
        fdName: `fd-${snapshot.podId}-${position}`,
        tap: tapName(snapshot.podId, position),
        mac: choice.mac(wanted, field),
        slot: position + 1,
      },
    };
  });
}

/** With a network of the driver's own there is nothing to choose: what was asked for is refused rather than ignored. */
function refuseChoices({ interfaces }: PodSpec): void {
  // Every interface names its network; anything beside that is a choice.
  const position = interfaces.findIndex((each, i) => i > 0 || Object.keys(each).length > 1);
  if (position < 0) return;
  throw new PodnetError("UNSUPPORTED", "The driver brings its own network", {
    field: `interfaces[${position}]`,
    hint: "Leave the interfaces out",
  });
}

function findNetwork(wanted: InterfaceSpec, snapshot: Snapshot, field: string): NetworkSnapshot {
  const network = snapshot.networks.find(({ name }) => name === wanted.network);
  if (network !== undefined) return network;
  throw new PodnetError("NETWORK_NOT_FOUND", `There is no network "${wanted.network}"`, {
    field: `${field}.network`,
    hint: `Networks are: ${snapshot.networks.map(({ name }) => name).join(", ")}`,
  });
}

function checkRoom(spec: PodSpec, snapshot: Snapshot): void {
  for (const network of snapshot.networks) {
    const more = spec.interfaces.filter((each) => each.network === network.name).length;
    if (more > 0) checkPortRoom({ bridge: network.bridge, used: network.ports, wanted: more });
  }
}

function planMtu(
  wanted: InterfaceSpec,
  network: NetworkSnapshot,
  addresses: readonly IpPrefix[],
  field: string,
): number {
  const mtu = wanted.mtu ?? network.mtu;
  // RFC 8200 section 5: IPv6 asks for 1280.
  const least = addresses.some((address) => familyOf(address) === 6) ? 1280 : 576;
  if (mtu >= least && mtu <= network.mtu) return mtu;
  throw new PodnetError(
    "MTU_OUT_OF_RANGE",
    `MTU ${mtu} is not between ${least} and the ${network.mtu} of network "${network.name}"`,
    {
      field: `${field}.mtu`,
      hint: `Ask for ${least} to ${network.mtu}, or leave it out`,
    },
  );
}

/** What is chosen so far, so that no two interfaces of a pod get the same. */
class Choice {
  readonly #snapshot: Snapshot;
  readonly #addresses = new Set<Ip>();
  readonly #macs = new Set<Mac>();
  readonly #names = new Set<string>(["lo"]);
  /** Addresses the spec asks for: never given to an automatic interface of the same pod. */
  readonly #asked: ReadonlySet<Ip>;
  readonly #askedMacs: ReadonlySet<Mac>;

  constructor(spec: PodSpec, snapshot: Snapshot) {
    this.#snapshot = snapshot;
    const bare = (address: Ip | IpPrefix): Ip =>
      address.includes("/") ? ipOf(address as IpPrefix) : (address as Ip);
    this.#asked = new Set(
      spec.interfaces.flatMap(({ address }) => (address === undefined ? [] : [bare(address)])),
    );
    this.#askedMacs = new Set(
      spec.interfaces.flatMap(({ mac }) => (mac === undefined ? [] : [mac])),
    );
  }

  /** Those that are asked for; else one of each of the network's pools. */
  addresses(wanted: InterfaceSpec, network: NetworkSnapshot, field: string): IpPrefix[] {
    if (wanted.address !== undefined) return [this.#taking(wanted.address, network, field)];
    return network.subnets.map((subnet) =>
      withLength(this.#next(network, subnet, field), lengthOf(subnet.cidr)),
    );
  }

  #taking(asked: Ip | IpPrefix, network: NetworkSnapshot, field: string): IpPrefix {
    const ip = asked.includes("/") ? ipOf(asked as IpPrefix) : (asked as Ip);
    const where = `${field}.address`;
    const subnet = network.subnets.find(({ cidr }) => contains(cidr, ip));
    if (subnet === undefined) {
      const cidrs = network.subnets.map(({ cidr }) => cidr).join(", ");
      throw new PodnetError(
        "ADDRESS_OUT_OF_RANGE",
        `Address ${ip} is not in network "${network.name}" (${cidrs})`,
        {
          field: where,
          hint: `Ask for an address of ${cidrs}, or for none`,
        },
      );
    }
    const full = asked.includes("/") ? (asked as IpPrefix) : withLength(ip, lengthOf(subnet.cidr));
    const status = subnet.asked[ip] ?? { kind: "free" };
    if (status.kind === "reserved") {
      throw new PodnetError("ADDRESS_RESERVED", `Address ${ip} is reserved: ${status.why}`, {
        field: where,
        hint: "Ask for another address, or for none",
      });
    }
    if (status.kind === "held" || this.#addresses.has(ip)) {
      const holder = status.kind === "held" ? status.by : "another interface of this pod";
      throw new PodnetError("ADDRESS_IN_USE", `Address ${ip} is held by ${holder}`, {
        field: where,
        hint: "Ask for another address, or for none",
        details: { holder },
      });
    }
    this.#addresses.add(ip);
    return full;
  }

  #next(network: NetworkSnapshot, subnet: SubnetSnapshot, field: string): Ip {
    const ip = subnet.nextFree.find((each) => !this.#addresses.has(each) && !this.#asked.has(each));
    if (ip === undefined) {
      throw new PodnetError(
        "POOL_EXHAUSTED",
        `Network "${network.name}" (${subnet.cidr}) has no free address`,
        {
          field: `${field}.network`,
          hint: "Delete pods, or configure a larger network",
        },
      );
    }
    this.#addresses.add(ip);
    return ip;
  }

  mac(wanted: InterfaceSpec, field: string): Mac {
    const mac = wanted.mac ?? this.#freshMac();
    const holder =
      this.#snapshot.macHolders[mac] ??
      (this.#macs.has(mac) ? "another interface of this pod" : undefined);
    if (holder !== undefined) {
      throw new PodnetError("MAC_IN_USE", `MAC ${mac} is taken by ${holder}`, {
        field: `${field}.mac`,
        hint: "Ask for another MAC, or for none",
        details: { holder },
      });
    }
    this.#macs.add(mac);
    return mac;
  }

  #freshMac(): Mac {
    const mac = this.#snapshot.freshMacs.find(
      (each) => !this.#macs.has(each) && !this.#askedMacs.has(each),
    );
    if (mac === undefined) throw new RangeError("The snapshot holds too few fresh MACs");
    return mac;
  }

  guestName(wanted: InterfaceSpec, position: number, field: string): IfName {
    const name = wanted.guestName ?? parseIfName(`eth${position}`);
    if (this.#names.has(name)) {
      throw new PodnetError("INVALID_ARGUMENT", `Guest name "${name}" is taken`, {
        field: `${field}.guest_name`,
        hint: "Every interface of a guest needs a name of its own, and lo is one already",
      });
    }
    this.#names.add(name);
    return name;
  }
}
