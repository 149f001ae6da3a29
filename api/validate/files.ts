import { printable } from "../../core/names.ts";
import type * as wire from "../gen/podnet/v1/pod_spec_pb.ts";
import type { FileSpec } from "../pod-spec.ts";
import { checkCount, invalid } from "../fields.ts";

const limits = { files: 64, bytes: 262_144, allBytes: 524_288, path: 1024, mode: 0o7777 } as const;
const defaultMode = 0o644;
/** The next number, -1, would leave the owner as it is (chown(2)). */
const mostId = 0xfffffffe;

/** What the API shows in the place of a file's content. */
export const hiddenContent = (bytes: number): string => `(${bytes} bytes, not shown)`;
const hidden = /^\([0-9]+ bytes, not shown\)$/;

/** Checks the files of a pod. */
export function validateFiles(files: readonly wire.GuestFile[]): readonly FileSpec[] {
  checkCount(files, limits.files, "files");
  const bytes = files.reduce((sum, { content }) => sum + content.length, 0);
  if (bytes > limits.allBytes)
    throw invalid(
      "files",
      `${bytes} bytes are too many for all files`,
      `Give at most ${limits.allBytes}; bring larger files with podnet cp, or on a disk`,
    );
  const checked = files.map((file, i) => validateFile(file, `files[${i}]`));
  checked.forEach(({ path }, i) => {
    if (checked.findIndex((each) => each.path === path) < i)
      throw invalid(`files[${i}].path`, `File "${printable(path)}" is there twice`, "Name it once");
  });
  return checked;
}

function validateFile(file: wire.GuestFile, field: string): FileSpec {
  const { path, content, mode = defaultMode, uid, gid } = file;
  const parts = path.split("/").slice(1);
  const isPath = path.startsWith("/") && path.length <= limits.path && !/\p{Cc}/u.test(path);
  if (!isPath || parts.some((part) => ["", ".", ".."].includes(part)))
    throw invalid(
      `${field}.path`,
      `"${printable(path)}" is not the path of a file in the guest`,
      `Write an absolute path of at most ${limits.path} characters, without "." and ".."`,
    );
  if (content.length > limits.bytes)
    throw invalid(
      `${field}.content`,
      `${content.length} bytes are too many for a file`,
      `Give at most ${limits.bytes}; bring larger files with podnet cp, or on a disk`,
    );
  const bytes = Buffer.from(content);
  if (bytes.length < 64 && hidden.test(bytes.toString("latin1")))
    throw invalid(
      `${field}.content`,
      "This is what the API shows in the place of a content",
      "Give the file's content",
    );
  if (mode > limits.mode)
    throw invalid(
      `${field}.mode`,
      `Mode 0${mode.toString(8)} has more than permission bits`,
      "Use at most 07777, which is 4095 in JSON",
    );
  for (const [name, id] of Object.entries({ uid, gid }))
    if (id > mostId)
      throw invalid(`${field}.${name}`, `${id} is no user or group`, `Use at most ${mostId}`);
  return { path, content: bytes.toString("base64"), mode, uid, gid };
}
