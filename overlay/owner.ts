import type { Brand } from "../core/brand.ts";
import type { GrantId } from "./store.ts";

/**
 * The id of a podnet host, 32 bits. It is part of the id of each etcd lease that the host is
 * granted, where flannel neither looks nor is disturbed. So each key identifies its host, whatever
 * address its value names.
 */
export type OwnerId = Brand<number, "OwnerId">;

/**
 * "pn" in the highest of the id's four 16-bit parts; etcd itself puts a part of a member's id
 * there.
 */
const mark = 0x706en;

/**
 * An owner's id from at least four bytes that stay the same on a host: a digest of its machine id.
 */
export function ownerFromBytes(bytes: Uint8Array): OwnerId {
  const [a = 0, b = 0, c = 0, d = 0] = bytes;
  return (((a << 24) | (b << 16) | (c << 8) | d) >>> 0) as OwnerId;
}

/** The id of an owner's etcd lease; `draw`, from 0 to below 1, distinguishes its leases. */
export const grantOf = (owner: OwnerId, draw: number): GrantId =>
  (mark << 48n) | (BigInt(owner) << 16n) | BigInt(Math.floor(draw * 0x1_0000));

/** The host that was granted the lease; undefined if it is no podnet host. */
export const ownerOf = (grant: GrantId): OwnerId | undefined =>
  grant >> 48n === mark ? (Number((grant >> 16n) & 0xffff_ffffn) as OwnerId) : undefined;
