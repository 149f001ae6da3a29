import { bareIp, hasLength } from "../../../api/pod-spec.ts";
import {
  contains,
  type Ip,
  type IpPrefix,
  ipOf,
  lengthOf,
  type Mac,
  withLength,
} from "../../../core/address.ts";
import { PodnetError } from "../../../core/errors.ts";
import { type IfName, parseIfName } from "../../../core/names.ts";
import type { AddressChoice, Place, Wish } from "./kinds/place.ts";
import type { InterfacePlan } from "../store/pod-plan.ts";
import type { NetworkSnapshot, Snapshot, SubnetSnapshot } from "../plan/snapshot.ts";

/** The holder of a requested value, as messages name it. */
const ownOther = "another interface of this pod";

const addressHeld = (ip: Ip, holder: string, field: string): PodnetError =>
  new PodnetError("ADDRESS_IN_USE", `Address ${ip} is held by ${holder}`, {
    field,
    hint: "Ask for another address, or for none",
    details: { holder },
  });

type Named = Pick<Wish, "wanted" | "field">;

/** The values chosen so far, so that no two interfaces of a pod get the same. */
export class Choice implements AddressChoice {
  readonly #snapshot: Snapshot;
  readonly #addresses = new Set<string>();
  /** Interfaces on foreign bridges. */
  readonly #onBridges = new Set<string>();
  readonly #macs: Set<Mac>;
  readonly #taps: Set<IfName>;
  readonly #names: Set<string>;
  /** Addresses asked for: never given to an automatic interface of the same pod. */
  readonly #asked: ReadonlySet<Ip>;
  readonly #askedMacs: ReadonlySet<Mac>;

  constructor(wishes: readonly Wish[], others: readonly InterfacePlan[], snapshot: Snapshot) {
    this.#snapshot = snapshot;
    const nics = others.flatMap(({ nic }) => nic ?? []);
    this.#macs = new Set(nics.map(({ mac }) => mac));
    this.#taps = new Set(nics.map(({ tap }) => tap));
    this.#names = new Set(others.map(({ guestName }) => guestName));
    this.#asked = new Set(wishes.flatMap(({ wanted }) => (wanted.addresses ?? []).map(bareIp)));
    this.#askedMacs = new Set(wishes.flatMap(({ wanted }) => wanted.mac ?? []));
    for (const { network, addresses } of others)
      for (const address of addresses) this.#addresses.add(`${ipOf(address)} ${network ?? ""}`);
  }

  ofNetwork({ wanted: { addresses }, was, field }: Wish, network: NetworkSnapshot): IpPrefix[] {
    if (addresses !== undefined)
      return addresses.map((asked, i) => {
        const where = addresses.length > 1 ? `${field}.addresses[${i}]` : `${field}.address`;
        return this.#taking(asked, network, where, was);
      });
    if (was !== undefined) return [...was.addresses];
    return network.subnets.map((subnet) =>
      withLength(this.#next(network, subnet, field), lengthOf(subnet.cidr)),
    );
  }

  /**
   * Refuses a network's addresses on `lo`: a guest answers for addresses of its `lo` on every link,
   * and another pod could have such an address, or get it.
   */
  refusePooled(addresses: readonly IpPrefix[], field: string): void {
    for (const { name, subnets } of this.#snapshot.networks)
      for (const address of addresses) {
        const subnet = subnets.find(({ cidr }) => contains(cidr, ipOf(address)));
        if (subnet === undefined) continue;
        throw new PodnetError(
          "ADDRESS_INVALID",
          `Address ${ipOf(address)} is of network "${name}" (${subnet.cidr})`,
          {
            field: `${field}.address`,
            hint: "Give lo an address of no network of podnet's, or ask for this one on an interface of that network",
          },
        );
      }
  }

  /**
   * Refuses an address that another pod has on the same foreign bridge and VLAN. Which addresses
   * other programs gave out there is for the bridge's owner to know.
   */
  refuseHeld(addresses: readonly IpPrefix[], { wanted, was, field }: Wish, bridge: IfName): void {
    const { onBridges = [], podId } = this.#snapshot;
    const vlan = wanted.port?.vlan;
    for (const address of addresses) {
      if (was?.addresses.includes(address) === true) continue;
      const ip = ipOf(address);
      const key = `${ip} ${bridge} ${vlan ?? ""}`;
      const held = onBridges.find(
        (each) =>
          each.bridge === bridge &&
          each.vlan === vlan &&
          ipOf(each.address) === ip &&
          each.tap !== was?.nic?.tap,
      );
      if (held !== undefined || this.#onBridges.has(key)) {
        const other = held !== undefined && held.podId !== podId;
        throw addressHeld(ip, other ? `pod "${held.podName}"` : ownOther, `${field}.address`);
      }
      this.#onBridges.add(key);
    }
  }

  #taking(
    asked: Ip | IpPrefix,
    network: NetworkSnapshot,
    field: string,
    was: InterfacePlan | undefined,
  ): IpPrefix {
    const ip = bareIp(asked);
    const subnet = network.subnets.find(({ cidr }) => contains(cidr, ip));
    if (subnet === undefined) {
      const cidrs = network.subnets.map(({ cidr }) => cidr).join(", ");
      throw new PodnetError(
        "ADDRESS_OUT_OF_RANGE",
        `Address ${ip} is not in network "${network.name}" (${cidrs})`,
        { field, hint: `Ask for an address of ${cidrs}, or for none` },
      );
    }
    const key = `${ip} ${network.name}`;
    const own = was?.addresses.some((address) => ipOf(address) === ip) === true;
    const status = own ? { kind: "free" as const } : (subnet.asked[ip] ?? { kind: "free" });
    if (status.kind === "reserved") {
      throw new PodnetError("ADDRESS_RESERVED", `Address ${ip} is reserved: ${status.why}`, {
        field,
        hint: "Ask for another address, or for none",
      });
    }
    if (status.kind === "held" || this.#addresses.has(key)) {
      throw addressHeld(ip, status.kind === "held" ? status.by : ownOther, field);
    }
    this.#addresses.add(key);
    return hasLength(asked) ? asked : withLength(ip, lengthOf(subnet.cidr));
  }

  #next(network: NetworkSnapshot, subnet: SubnetSnapshot, field: string): Ip {
    const key = (ip: Ip): string => `${ip} ${network.name}`;
    const ip = subnet.nextFree.find(
      (each) => !this.#addresses.has(key(each)) && !this.#asked.has(each),
    );
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
    this.#addresses.add(key(ip));
    return ip;
  }

  mac({ wanted, field }: Named): Mac {
    const mac = wanted.mac ?? this.#freshMac();
    const holder = this.#snapshot.macHolders[mac] ?? (this.#macs.has(mac) ? ownOther : undefined);
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

  /**
   * The host's end: the name asked for, of a link that is not there yet unless it is kept, else
   * that of its own.
   */
  tap({ wanted, field }: Named, { keepsTap }: Place, own: IfName): IfName {
    const { tap } = wanted;
    if (tap === undefined) return own;
    const { tapHolders = {}, links = {} } = this.#snapshot;
    const there = !keepsTap && links[tap] !== undefined;
    const holder =
      tapHolders[tap] ??
      (this.#taps.has(tap) ? ownOther : undefined) ??
      (there ? "a link of the host" : undefined);
    if (holder !== undefined) {
      throw new PodnetError("NAME_IN_USE", `Tap name "${tap}" is taken by ${holder}`, {
        field: `${field}.tap`,
        hint: "Choose another name, or leave it out",
        details: { holder },
      });
    }
    this.#taps.add(tap);
    return tap;
  }

  guestName({ wanted, was, field }: Wish, place: Place, position: number): IfName {
    const name =
      was?.guestName ?? place.guestName ?? wanted.guestName ?? parseIfName(`eth${position}`);
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
