import { createHash, type Hash } from "node:crypto";
import type { Brand } from "../../core/brand.ts";
import { quoted, unreadable } from "../unreadable.ts";

/** `sha256:` or `sha512:` and hexadecimal digits (OCI image specification, "Digests"). */
export type Digest = Brand<string, "Digest">;

const pattern = /^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$/;

export const isDigest = (text: string): text is Digest => pattern.test(text);

/** Throws `IMAGE_UNREADABLE`. */
export function parseDigest(text: string): Digest {
  if (isDigest(text)) return text;
  throw unreadable(`${quoted(text.slice(0, 80))} is no digest that podnet knows`);
}

/** Begins a hash by the algorithm of a digest. */
export const hashLike = (digest: Digest): Hash => createHash(digest.slice(0, digest.indexOf(":")));

/** The digest of bytes, by the algorithm of another digest, or SHA-256. */
export function digestOf(bytes: Uint8Array, like?: Digest): Digest {
  const algorithm = like?.slice(0, like.indexOf(":")) ?? "sha256";
  return `${algorithm}:${createHash(algorithm).update(bytes).digest("hex")}` as Digest;
}
