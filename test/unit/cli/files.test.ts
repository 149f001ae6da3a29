import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { fileFrom, volumeFrom } from "../../../cli/flags/file-flags.ts";

const directory = mkdtempSync(join(tmpdir(), "cli-files-"));
test.after.always(() => rmSync(directory, { recursive: true }));

test("--copy takes a local file with its mode, or with the one that is named", (t) => {
  const from = join(directory, "a:b");
  writeFileSync(from, "words");
  chmodSync(from, 0o750);
  const content = Buffer.from("words");
  const root = { path: "/etc/x", content, uid: 0, gid: 0 };
  t.deepEqual(fileFrom(`${from}:/etc/x`), { ...root, mode: 0o750 });
  t.deepEqual(fileFrom(`${from}:/etc/x,mode=0600,owner=7`), {
    ...root,
    mode: 0o600,
    uid: 7,
    gid: 7,
  });
  t.like(fileFrom(`${from}:/etc/x,owner=7:8`), { uid: 7, gid: 8 });
});

test("--copy refuses what it cannot mean, and files it cannot read", (t) => {
  const from = join(directory, "there");
  writeFileSync(from, "");
  for (const text of [from, `${from}:relative`, `${from}:/x,mode=9`, `${from}:/x,owner=root`])
    t.throws(() => fileFrom(text), { code: "INVALID_ARGUMENT" }, text);
  t.throws(() => fileFrom(`${from}-not:/x`), { code: "INVALID_ARGUMENT", message: /ENOENT/ });
  writeFileSync(from, Buffer.alloc((1 << 20) + 1));
  t.throws(() => fileFrom(`${from}:/x`), { code: "INVALID_ARGUMENT", message: /1 MiB/ });
});

test("--volume shares a directory, and copies a file", (t) => {
  t.deepEqual(volumeFrom(`${directory}:/srv`), { share: { hostPath: directory, path: "/srv" } });
  t.deepEqual(volumeFrom(".:/srv:ro"), { share: { hostPath: process.cwd(), path: "/srv" } });
  t.deepEqual(volumeFrom(".:/srv:rw"), {
    share: { hostPath: process.cwd(), path: "/srv", writable: true },
  });
  // podnetd may be elsewhere: it says whether there is such a directory.
  t.deepEqual(volumeFrom("/no/where:/srv"), { share: { hostPath: "/no/where", path: "/srv" } });
  const from = join(directory, "copied");
  writeFileSync(from, "words");
  chmodSync(from, 0o640);
  const file = { path: "/etc/x", content: Buffer.from("words"), mode: 0o640, uid: 0, gid: 0 };
  t.deepEqual(volumeFrom(`${from}:/etc/x`), { file });
  for (const text of [directory, `${directory}:relative`, `${from}:/srv:rw`, ":/srv"])
    t.throws(() => volumeFrom(text), { code: "INVALID_ARGUMENT" }, text);
});
