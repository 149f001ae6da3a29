import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import {
  makeJobDirectory,
  removeJobDirectory,
  takeFile,
} from "../../../../daemon/images/job-directory.ts";

const worker = 2_000_065_534;
const top = mkdtempSync(path.join(tmpdir(), "podnet-job-"));
test.after.always(() => rmSync(top, { recursive: true, force: true }));

test("a job's directory belongs to podnetd, and its worker's group may write to it", (t) => {
  const directory = path.join(top, "shared/work");
  mkdirSync(directory, { recursive: true });
  writeFileSync(path.join(directory, "of-before"), "");
  makeJobDirectory(directory, worker);
  const { uid, gid, mode } = statSync(directory);
  t.deepEqual(
    { uid, gid, mode: mode & 0o777 },
    { uid: process.getuid?.(), gid: worker, mode: 0o770 },
  );
  t.false(existsSync(path.join(directory, "of-before")));
});

test("a directory is removed with what its worker made, and nothing that a link leads to", (t) => {
  const directory = path.join(top, "removed");
  makeJobDirectory(directory, worker);
  const outside = path.join(top, "outside");
  mkdirSync(outside);
  writeFileSync(path.join(outside, "kept"), "");
  const deep = path.join(directory, "a/b");
  mkdirSync(deep, { recursive: true });
  writeFileSync(path.join(deep, "file"), "");
  symlinkSync(outside, path.join(deep, "link"));
  for (const each of [deep, path.dirname(deep)]) {
    chownSync(each, worker, worker);
    chmodSync(each, 0);
  }
  removeJobDirectory(directory);
  t.false(existsSync(directory));
  t.true(existsSync(path.join(outside, "kept")));
  t.notThrows(() => removeJobDirectory(directory), "it is gone already");
});

test("only a plain file with one name is taken from a worker", (t) => {
  const at = (name: string): string => path.join(top, name);
  writeFileSync(at("plain"), "");
  chownSync(at("plain"), worker, worker);
  t.true(takeFile(at("plain")));
  t.is(lstatSync(at("plain")).uid, process.getuid?.() ?? 0);

  const target = at("target");
  writeFileSync(target, "");
  chownSync(target, worker, worker);
  symlinkSync(target, at("link"));
  t.false(takeFile(at("link")));
  t.is(statSync(target).uid, worker, "what a link leads to is not taken");
  linkSync(target, at("second"));
  t.false(takeFile(at("second")));
  t.throws(() => takeFile(at("nothing")), { code: "ENOENT" });
});
