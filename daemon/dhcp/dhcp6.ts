import { createHash } from "node:crypto";
import { ipOf, ipToBytes } from "../../core/address.ts";
import { leaseTimes, type PortLease } from "./lease.ts";
import { domainBytes } from "./names.ts";

/** RFC 8415 section 7.3. */
export const dhcp6Types = {
  solicit: 1,
  advertise: 2,
  request: 3,
  confirm: 4,
  renew: 5,
  rebind: 6,
  reply: 7,
  release: 8,
  decline: 9,
  informationRequest: 11,
} as const;

/** RFC 8415 section 21, RFC 3646 (DNS). */
const options = {
  client: 1,
  server: 2,
  iaNa: 3,
  address: 5,
  status: 13,
  rapidCommit: 14,
  dns: 23,
  search: 24,
} as const;
const status = { success: 0, notOnLink: 4 } as const;

/** Longest DUID (RFC 8415 section 11.1), with its type. */
const mostDuid = 130;
/**
 * Associations read of one message; a client has one for each interface, and the first is answered.
 */
const mostAssociations = 8;

/** A client's message. */
export interface Dhcp6Message {
  readonly type: number;
  /** Three bytes. */
  readonly transaction: Uint8Array;
  readonly client?: Uint8Array;
  readonly server?: Uint8Array;
  readonly rapidCommit: boolean;
  /** Of each association for addresses: its number, and the addresses that are named in it. */
  readonly associations: readonly Association[];
}

interface Association {
  /** Four bytes. */
  readonly id: Uint8Array;
  /** Sixteen bytes each. */
  readonly addresses: readonly Uint8Array[];
}

/** Parses a client's message; undefined for an invalid one. */
export function parseDhcp6(bytes: Uint8Array): Dhcp6Message | undefined {
  const [type] = bytes;
  const found =
    type === undefined || bytes.length < 4 ? undefined : parseOptions(bytes.subarray(4));
  if (type === undefined || found === undefined) return undefined;
  let client: Uint8Array | undefined;
  let server: Uint8Array | undefined;
  let rapidCommit = false;
  const associations: Association[] = [];
  for (const { code, value } of found) {
    if (code === options.client) client ??= Uint8Array.from(value);
    if (code === options.server) server ??= Uint8Array.from(value);
    if (code === options.rapidCommit) rapidCommit = true;
    if (code !== options.iaNa) continue;
    const inside = value.length < 12 ? undefined : parseOptions(value.subarray(12));
    if (inside === undefined || associations.length === mostAssociations) return undefined;
    const addresses = inside
      .filter((each) => each.code === options.address && each.value.length >= 24)
      .map((each) => Uint8Array.from(each.value.subarray(0, 16)));
    associations.push({ id: Uint8Array.from(value.subarray(0, 4)), addresses });
  }
  if ((client?.length ?? 0) > mostDuid || (server?.length ?? 0) > mostDuid) return undefined;
  return {
    type,
    transaction: Uint8Array.from(bytes.subarray(1, 4)),
    ...(client === undefined ? {} : { client }),
    ...(server === undefined ? {} : { server }),
    rapidCommit,
    associations,
  };
}

function parseOptions(
  bytes: Uint8Array,
): { readonly code: number; readonly value: Uint8Array }[] | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const found = [];
  for (let at = 0; at < bytes.length; ) {
    if (at + 4 > bytes.length) return undefined;
    const code = view.getUint16(at);
    const length = view.getUint16(at + 2);
    if (at + 4 + length > bytes.length) return undefined;
    found.push({ code, value: bytes.subarray(at + 4, at + 4 + length) });
    at += 4 + length;
  }
  return found;
}

/**
 * Who answers, to a client: the same whenever podnetd runs (DUID-UUID, RFC 6355), and another for
 * each port.
 */
export function serverDuid({ mac }: Pick<PortLease, "mac">): Uint8Array {
  const uuid = createHash("sha256").update(`podnet ${mac}`).digest().subarray(0, 16);
  return Uint8Array.from([0, 4, ...uuid]);
}

type V6 = NonNullable<PortLease["v6"]>;

/**
 * Writes an answer. `with`: addresses to associations, a status, or neither, alongside what else
 * there is to know.
 */
export function writeDhcp6(
  { transaction, client, associations, rapidCommit }: Dhcp6Message,
  type: number,
  lease: PortLease & { readonly v6: V6 },
  withWhat: "addresses" | "success" | "not-on-link" | "nothing",
): Uint8Array {
  const { v6, search } = lease;
  const answered = withWhat === "addresses" ? associations.slice(0, 1) : [];
  return Buffer.concat([
    Uint8Array.of(type),
    transaction,
    ...(client === undefined ? [] : [option(options.client, client)]),
    option(options.server, serverDuid(lease)),
    ...answered.map(({ id }) => association(id, v6)),
    ...(withWhat === "addresses" && rapidCommit && type === dhcp6Types.reply
      ? [option(options.rapidCommit, new Uint8Array(0))]
      : []),
    ...(withWhat === "success" ? [statusOption(status.success)] : []),
    ...(withWhat === "not-on-link" ? [statusOption(status.notOnLink)] : []),
    ...(v6.dns.length === 0 ? [] : [option(options.dns, Buffer.concat(v6.dns.map(ipToBytes)))]),
    ...(search.length === 0 ? [] : [option(options.search, domainBytes(search))]),
  ]);
}

const statusOption = (code: number): Uint8Array => option(options.status, Uint8Array.of(0, code));

/** All addresses of the interface, whatever number the client gave the association. */
function association(id: Uint8Array, { addresses }: V6): Uint8Array {
  const { renew, rebind, lease } = leaseTimes;
  return option(
    options.iaNa,
    Buffer.concat([
      id,
      u32(renew),
      u32(rebind),
      ...addresses.map((address) =>
        option(options.address, Buffer.concat([ipToBytes(ipOf(address)), u32(lease), u32(lease)])),
      ),
    ]),
  );
}

function u32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

function option(code: number, value: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(4 + value.length);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, code);
  view.setUint16(2, value.length);
  bytes.set(value, 4);
  return bytes;
}
