import { assertNever } from "../../core/brand.ts";
import { type Ip, type IpPrefix, ipOf, ipToBytes, type Mac } from "../../core/address.ts";
import type { ObservedRouter } from "../../network/model/observed.ts";
import { writeAdvertisement } from "./advertisement.ts";
import { dhcp4Types, type Dhcp4Message, parseDhcp4, writeDhcp4 } from "./dhcp4.ts";
import { dhcp6Types, type Dhcp6Message, parseDhcp6, serverDuid, writeDhcp6 } from "./dhcp6.ts";
import type { PortLease } from "./lease.ts";
import { allNodes, type Ask, type End, frame4, frame6, frameIcmp6 } from "./packets.ts";

/**
 * The host's end of the network, from which guests are answered: no IPv6 without a link-local
 * address to be a router by.
 */
export type Router = ObservedRouter;

/** The result of a request. */
export interface Answer {
  /** A frame, for the guest alone. */
  readonly frame?: Uint8Array;
  /** Addresses that the guest has, according to this request. */
  readonly taken?: readonly IpPrefix[];
  /** Why it is not answered, of a small set: it is counted. */
  readonly ignored?: "dhcp_other_mac" | "dhcp_malformed" | "dhcp_not_for_us";
  /** For people. */
  readonly note?: string;
}

type V4Lease = PortLease & { readonly v4: NonNullable<PortLease["v4"]> };
type V6Lease = PortLease & { readonly v6: NonNullable<PortLease["v6"]> };
const hasV4 = (lease: PortLease): lease is V4Lease => lease.v4 !== undefined;
const hasV6 = (lease: PortLease): lease is V6Lease => lease.v6 !== undefined;

/**
 * The answer to a guest. Pure: equal requests have equal answers, at any time and by any podnetd.
 */
export function answer(ask: Ask, lease: PortLease, router: Router): Answer {
  if (ask.from !== lease.mac) return { ignored: "dhcp_other_mac" };
  switch (ask.kind) {
    case "dhcp4":
      return hasV4(lease) ? answer4(ask.message, lease, router) : {};
    case "dhcp6":
      return hasV6(lease) ? answer6(ask, lease, router) : {};
    case "router-solicitation":
      return { ...advertise(lease, router, ask.source === "::" ? allNodes : ask.source) };
    case "shows":
      return { taken: addressesOf(lease).filter((address) => ipOf(address) === ask.address) };
    default:
      return assertNever(ask);
  }
}

const addressesOf = ({ v4, v6 }: PortLease): readonly IpPrefix[] => [
  ...(v4 === undefined ? [] : [v4.address]),
  ...(v6?.addresses ?? []),
];

/** The router advertisement for a guest; nothing where it has no IPv6. */
export function advertise(
  lease: PortLease,
  { mac, linkLocal }: Router,
  to: Ip = allNodes,
): Pick<Answer, "frame"> {
  if (!hasV6(lease) || linkLocal === undefined) return {};
  const message = writeAdvertisement(lease, mac);
  return { frame: frameIcmp6({ mac, ip: linkLocal }, { mac: lease.mac, ip: to }, message) };
}

const everyone: End = { mac: "ff:ff:ff:ff:ff:ff" as Mac, ip: "255.255.255.255" as Ip };
const nowhere = "0.0.0.0";

/** RFC 2131 section 4.3. */
function answer4(bytes: Uint8Array, lease: V4Lease, { mac }: Router): Answer {
  const said = parseDhcp4(bytes);
  if (said === undefined) return { ignored: "dhcp_malformed" };
  // Neither what a guest passes on for others, nor what it asks for another of its own cards.
  if (said.chaddr !== lease.mac || said.giaddr !== nowhere) return { ignored: "dhcp_other_mac" };
  const own = ipOf(lease.v4.address);
  const from: End = { mac, ip: lease.v4.server };
  const reply = (type: number, kind: Parameters<typeof writeDhcp4>[3]): Answer => {
    const to = ending4(said, kind, own);
    return { frame: frame4(from, to, writeDhcp4(said, type, lease, kind)) };
  };
  switch (said.type) {
    case dhcp4Types.discover:
      return reply(dhcp4Types.offer, "leased");
    case dhcp4Types.request: {
      if (said.server !== undefined && said.server !== lease.v4.server)
        return { ignored: "dhcp_not_for_us" };
      const wanted = said.requested ?? said.ciaddr;
      if (wanted !== own) return reply(dhcp4Types.nak, "refused");
      return { ...reply(dhcp4Types.ack, "leased"), taken: [lease.v4.address] };
    }
    case dhcp4Types.inform:
      return reply(dhcp4Types.ack, "informed");
    case dhcp4Types.decline:
      return { note: `the guest says that another machine has ${own}` };
    case dhcp4Types.release:
      // It stays the pod's.
      return {};
    default:
      return { ignored: "dhcp_malformed" };
  }
}

/**
 * Where an answer goes: an address that the client has, or can take, else to all — which are this
 * guest alone.
 */
function ending4(
  { broadcast, ciaddr, chaddr }: Dhcp4Message,
  kind: "leased" | "informed" | "refused",
  own: Ip,
): End {
  if (kind === "refused") return everyone;
  if (ciaddr !== nowhere) return { mac: chaddr, ip: ciaddr };
  return broadcast ? everyone : { mac: chaddr, ip: own };
}

/** RFC 8415 section 18.3. */
function answer6(
  { source, message: bytes }: { readonly source: Ip; readonly message: Uint8Array },
  lease: V6Lease,
  { mac, linkLocal }: Router,
): Answer {
  const said = parseDhcp6(bytes);
  if (said === undefined || !source.startsWith("fe80:")) return { ignored: "dhcp_malformed" };
  if (linkLocal === undefined) return {};
  if (said.server !== undefined && !same(said.server, serverDuid(lease)))
    return { ignored: "dhcp_not_for_us" };
  const reply = (
    type: number,
    withWhat: "addresses" | "success" | "not-on-link" | "nothing",
  ): Pick<Answer, "frame"> => ({
    frame: frame6(
      { mac, ip: linkLocal },
      { mac: lease.mac, ip: source },
      writeDhcp6(said, type, lease, withWhat),
    ),
  });
  const leased = (): Answer => ({
    ...reply(dhcp6Types.reply, "addresses"),
    ...(said.associations.length === 0 ? {} : { taken: lease.v6.addresses }),
  });
  const { type } = said;
  // Section 16: without the client's identifier only a request that needs no address is valid, …
  if (said.client === undefined && type !== dhcp6Types.informationRequest)
    return { ignored: "dhcp_malformed" };
  switch (type) {
    case dhcp6Types.solicit:
      return said.rapidCommit ? leased() : reply(dhcp6Types.advertise, "addresses");
    case dhcp6Types.request:
    case dhcp6Types.renew:
      // … and without a server's identifier these are invalid.
      return said.server === undefined ? { ignored: "dhcp_malformed" } : leased();
    case dhcp6Types.rebind:
      return leased();
    case dhcp6Types.confirm:
      return reply(dhcp6Types.reply, onLink(said, lease) ? "success" : "not-on-link");
    case dhcp6Types.release:
    case dhcp6Types.decline:
      return reply(dhcp6Types.reply, "success");
    case dhcp6Types.informationRequest:
      return reply(dhcp6Types.reply, "nothing");
    default:
      return { ignored: "dhcp_malformed" };
  }
}

const same = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && a.every((byte, i) => byte === b[i]);

/** Whether the addresses a client comes back with are the interface's. */
function onLink({ associations }: Dhcp6Message, { v6 }: V6Lease): boolean {
  const own = v6.addresses.map((address) => ipToBytes(ipOf(address)));
  return associations.every(({ addresses }) =>
    addresses.every((address) => own.some((each) => same(each, address))),
  );
}
