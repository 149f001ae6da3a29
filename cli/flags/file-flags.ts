import { readFileSync, statSync } from "node:fs";
import { resolve } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { GuestFileSchema, ShareSchema } from "../../api/gen/podnet/v1/pod_spec_pb.ts";
import { PodnetError } from "../../core/errors.ts";
import { printable } from "../../core/names.ts";
import { parseCount, parseParts } from "../parse.ts";
import { usage } from "../usage.ts";

export const copyHelp = "SRC:DST[,mode=0600][,owner=UID[:GID]]";

export const volumeHelp = "DIR:PATH[:rw] or FILE:PATH";

/**
 * `--volume`: a directory that the guest shares, or a local file that is copied. Throws
 * `INVALID_ARGUMENT`.
 */
export function volumeFrom(
  text: string,
):
  | { readonly share: MessageInitShape<typeof ShareSchema> }
  | { readonly file: MessageInitShape<typeof GuestFileSchema> } {
  const [, from, path, mode] = /^(.+?):(\/[^:,]*?)(?::(ro|rw))?$/.exec(text) ?? [];
  if (from === undefined || path === undefined)
    throw usage(
      `--volume "${printable(text)}" names no two paths`,
      `Write ${volumeHelp}; with :rw the guest writes to a directory`,
    );
  const isDirectory = statSync(from, { throwIfNoEntry: false })?.isDirectory() !== false;
  // (podnetd says whether it has such a directory: it may be on another host.)
  if (isDirectory) {
    const writable = mode === "rw" ? { writable: true } : {};
    return { share: { hostPath: resolve(from), path, ...writable } };
  }
  if (mode === "rw")
    throw usage(`--volume "${printable(text)}" is a file`, "Share the directory that it is in");
  return { file: { path, uid: 0, gid: 0, ...read(from) } };
}

/** A local file for the guest: `./app.conf:/etc/app.conf,mode=0600`. Throws `INVALID_ARGUMENT`. */
export function fileFrom(text: string): MessageInitShape<typeof GuestFileSchema> {
  const { first, rest } = parseParts("--copy", text, ["mode", "owner"]);
  const [, from, path] = /^(.+?):(\/.*)$/.exec(first) ?? [];
  if (from === undefined || path === undefined)
    throw usage(`--copy "${printable(text)}" names no two paths`, `Write ${copyHelp}`);
  const { mode, owner = "0" } = rest;
  if (mode !== undefined && !/^[0-7]{1,5}$/.test(mode))
    throw usage(`--copy mode "${printable(mode)}" is not octal`, "Write digits such as 0600");
  const [uid = "", gid = uid] = owner.split(":", 2);
  const local = read(from);
  return {
    path,
    content: local.content,
    mode: mode === undefined ? local.mode : Number.parseInt(mode, 8),
    uid: parseCount("--copy owner", uid),
    gid: parseCount("--copy owner", gid),
  };
}

function read(file: string): { readonly content: Uint8Array; readonly mode: number } {
  try {
    const { mode, size } = statSync(file);
    // (podnetd has smaller limits, and says so.)
    if (size <= 1 << 20) return { content: readFileSync(file), mode: mode & 0o777 };
  } catch (cause) {
    const { code = "unknown" } = cause as NodeJS.ErrnoException;
    throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" cannot be read (${code})`, {
      hint: "Name a file you may read",
      details: { errno: code },
      cause,
    });
  }
  throw new PodnetError("INVALID_ARGUMENT", `"${printable(file)}" is larger than 1 MiB`, {
    hint: "Bring large files with podnet cp, or on a disk",
  });
}
