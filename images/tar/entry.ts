/**
 * Paths, link targets and names of attributes are bytes, and no encoding is promised. They are kept
 * as strings of which each character is one byte.
 */
export type Bytes = string;

export const entryKinds = [
  "file",
  "hardlink",
  "symlink",
  "character",
  "block",
  "directory",
  "fifo",
] as const;

/** What lies at a path of an archive. */
export interface TarEntry {
  readonly path: Bytes;
  readonly kind: (typeof entryKinds)[number];
  /** Permissions, with the set-user-id, set-group-id and sticky bits: 12 bits. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Whole seconds since 1970, never below 0. */
  readonly mtime: number;
  /** Bytes of a file, with its holes; 0 of all else. */
  readonly size: number;
  /** Of a hard link the path of its file, of a symbolic link its text; else empty. */
  readonly target: Bytes;
  /** Numbers of a device. */
  readonly major: number;
  readonly minor: number;
  readonly xattrs: ReadonlyMap<Bytes, Bytes>;
}

export const blockBytes = 512;

/** Zeros that follow so many bytes, up to the end of their block. */
export const paddingOf = (bytes: number): number =>
  (blockBytes - (bytes % blockBytes)) % blockBytes;
