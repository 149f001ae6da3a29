import {
  dottedMask,
  type Ip,
  ipFromBytes,
  ipOf,
  ipToBytes,
  lengthOf,
  type Mac,
  macFromBytes,
  macToBytes,
} from "../../core/address.ts";
import { encodeUtf8 } from "../../core/utf8.ts";
import { type LeaseRoute, leaseTimes, type PortLease } from "./lease.ts";
import { domainBytes } from "./names.ts";

/** RFC 2132 section 9.6. */
export const dhcp4Types = {
  discover: 1,
  offer: 2,
  request: 3,
  decline: 4,
  ack: 5,
  nak: 6,
  release: 7,
  inform: 8,
} as const;

/** RFC 2132, 3397 (search), 3442 (routes). */
const options = {
  mask: 1,
  router: 3,
  dns: 6,
  hostname: 12,
  domain: 15,
  mtu: 26,
  requested: 50,
  lease: 51,
  type: 53,
  server: 54,
  renew: 58,
  rebind: 59,
  client: 61,
  search: 119,
  routes: 121,
} as const;
const pad = 0;
const end = 255;

const fixedSize = 236;
const cookie = [99, 130, 83, 99] as const;
/** RFC 1542 section 2.1: some clients take nothing shorter. */
const leastSize = 300;
/** The smallest limit of clients: busybox's buffer. */
export const mostOptions = 308;

/** A client's message. */
export interface Dhcp4Message {
  readonly type: number;
  readonly xid: number;
  /** It cannot take an answer to an address that it does not have yet. */
  readonly broadcast: boolean;
  /** The address it has and uses. */
  readonly ciaddr: Ip;
  /** A relay that passed it on. */
  readonly giaddr: Ip;
  readonly chaddr: Mac;
  readonly requested?: Ip;
  readonly server?: Ip;
  /** Option 61, to be sent back (RFC 6842). */
  readonly client?: Uint8Array;
}

/** Parses a client's message; undefined for an invalid one. */
export function parseDhcp4(bytes: Uint8Array): Dhcp4Message | undefined {
  if (bytes.length < fixedSize + cookie.length) return undefined;
  const [op, hardware, size] = bytes;
  if (op !== 1 || hardware !== 1 || size !== 6) return undefined;
  if (cookie.some((byte, i) => bytes[fixedSize + i] !== byte)) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const found = parseOptions(bytes.subarray(fixedSize + cookie.length));
  const [type, ...more] = found?.get(options.type) ?? [];
  if (found === undefined || type === undefined || more.length > 0) return undefined;
  const address = (option: number): Ip | undefined => {
    const value = found.get(option);
    return value?.length === 4 ? ipFromBytes(value) : undefined;
  };
  const requested = address(options.requested);
  const server = address(options.server);
  const client = found.get(options.client);
  return {
    type,
    xid: view.getUint32(4),
    broadcast: (view.getUint16(10) & 0x8000) !== 0,
    ciaddr: ipFromBytes(bytes.subarray(12, 16)),
    giaddr: ipFromBytes(bytes.subarray(24, 28)),
    chaddr: macFromBytes(bytes.subarray(28, 34)),
    ...(requested === undefined ? {} : { requested }),
    ...(server === undefined ? {} : { server }),
    ...(client === undefined ? {} : { client: Uint8Array.from(client) }),
  };
}

/** By code, the first of each; undefined when they are cut short. */
function parseOptions(bytes: Uint8Array): Map<number, Uint8Array> | undefined {
  const found = new Map<number, Uint8Array>();
  for (let at = 0; ; ) {
    const code = bytes[at];
    if (code === undefined || code === end) return found;
    if (code === pad) {
      at++;
      continue;
    }
    const length = bytes[at + 1];
    if (length === undefined || at + 2 + length > bytes.length) return undefined;
    if (!found.has(code)) found.set(code, bytes.subarray(at + 2, at + 2 + length));
    at += 2 + length;
  }
}

type V4 = NonNullable<PortLease["v4"]>;

/**
 * Writes an answer. `refused`: the address it wants is not its own. `informed`: it has one, and
 * wants to know the rest.
 */
export function writeDhcp4(
  { xid, broadcast, ciaddr, chaddr, client }: Dhcp4Message,
  type: number,
  lease: PortLease & { readonly v4: V4 },
  kind: "leased" | "informed" | "refused",
): Uint8Array {
  const bytes: number[] = [2, 1, 6, 0];
  bytes.push(...u32(xid), 0, 0, broadcast ? 0x80 : 0, 0);
  bytes.push(...ipToBytes(kind === "refused" ? zero : ciaddr));
  bytes.push(...ipToBytes(kind === "leased" ? ipOf(lease.v4.address) : zero));
  // No relay, and nothing to boot from.
  bytes.push(...ipToBytes(zero), ...ipToBytes(zero), ...macToBytes(chaddr));
  while (bytes.length < fixedSize) bytes.push(0);
  bytes.push(...cookie, options.type, 1, type);
  bytes.push(options.server, 4, ...ipToBytes(lease.v4.server));
  if (client !== undefined) bytes.push(options.client, client.length, ...client);
  if (kind === "leased") bytes.push(...timeBytes());
  if (kind !== "refused") bytes.push(...configBytes(lease));
  bytes.push(end);
  while (bytes.length < leastSize) bytes.push(pad);
  return Uint8Array.from(bytes);
}

const zero = "0.0.0.0" as Ip;

const u32 = (value: number): number[] => [24, 16, 8, 0].map((shift) => (value >>> shift) & 255);

/** An option's bytes; what does not fit into one goes on in another (RFC 3396). */
function option(code: number, value: Uint8Array | readonly number[]): number[] {
  const out: number[] = [];
  const rest = [...value];
  while (rest.length > 0) {
    const part = rest.splice(0, 255);
    out.push(code, part.length, ...part);
  }
  return out;
}

const timeBytes = (): number[] => [
  ...option(options.lease, u32(leaseTimes.lease)),
  ...option(options.renew, u32(leaseTimes.renew)),
  ...option(options.rebind, u32(leaseTimes.rebind)),
];

/** A guest's settings in addition to its address: the options that depend on the pod. */
export function configBytes(lease: PortLease & { readonly v4: V4 }): number[] {
  const { v4, mtu, hostname, search } = lease;
  const [domain] = search;
  return [
    ...option(options.mask, ipToBytes(dottedMask(lengthOf(v4.address)) as Ip)),
    ...(v4.router === undefined ? [] : option(options.router, ipToBytes(v4.router))),
    ...option(
      options.dns,
      v4.dns.flatMap((ip) => [...ipToBytes(ip)]),
    ),
    ...option(options.hostname, encodeUtf8(hostname)),
    ...(domain === undefined ? [] : option(options.domain, encodeUtf8(domain.replace(/\.$/, "")))),
    ...option(options.mtu, [mtu >> 8, mtu & 255]),
    ...option(options.search, domainBytes(search)),
    ...option(options.routes, routeBytes(v4)),
  ];
}

/** A client that reads these reads no option 3: the default route is among them. */
function routeBytes({ routes, router }: V4): number[] {
  if (routes.length === 0) return [];
  const byDefault: LeaseRoute[] =
    router === undefined
      ? []
      : [{ destination: "0.0.0.0/0" as LeaseRoute["destination"], gateway: router }];
  return [...routes, ...byDefault].flatMap(({ destination, gateway = zero }) => {
    const length = lengthOf(destination);
    const significant = ipToBytes(ipOf(destination)).subarray(0, Math.ceil(length / 8));
    return [length, ...significant, ...ipToBytes(gateway)];
  });
}
