import { gzipSync } from "node:zlib";
import { Header } from "tar";

/** A tar archive of texts by name, compressed. Only its owner may read what is unpacked. */
export function archiveOf(
  directory: string,
  files: ReadonlyMap<string, string>,
  now: Date,
): Buffer {
  const parts = [...files].flatMap(([name, text]) => {
    const body = Buffer.from(text);
    const header = new Header({
      path: `${directory}/${name}`,
      mode: 0o600,
      uid: 0,
      gid: 0,
      size: body.length,
      mtime: now,
      type: "File",
    });
    const block = Buffer.alloc(512);
    header.encode(block);
    return [block, body, Buffer.alloc((512 - (body.length % 512)) % 512)];
  });
  // An archive ends with two blocks of zeros (POSIX.1-2001, "ustar Interchange Format").
  return gzipSync(Buffer.concat([...parts, Buffer.alloc(1024)]));
}
