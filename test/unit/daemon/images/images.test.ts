import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "ava";
import { isPodnetError } from "../../../../core/errors.ts";
import { Images } from "../../../../daemon/images/images.ts";
import { listImages, putImage, putName } from "../../../../daemon/images/store.ts";
import { Database } from "../../../../daemon/store/database.ts";
import type { Digest } from "../../../../images/archive/digest.ts";

const digestOf = (begin: string): Digest => `sha256:${begin.padEnd(64, "0")}` as Digest;
const config = {
  architecture: "amd64",
  entrypoint: ["/bin/serve"],
  command: [],
  environment: ["A=1"],
  directory: "/srv",
  user: "web",
  stopSignal: "",
  exposedPorts: ["80/tcp"],
  labels: { team: "a" },
};

function openImages(directory = mkdtempSync(path.join(tmpdir(), "podnet-image-rows-"))) {
  const state = { nowMs: 1000, held: new Set<string>() };
  const db = Database.openIn(directory);
  const images = new Images({
    db,
    directory: path.join(directory, "image-store"),
    registry: "docker.io",
    mostBytes: 100,
    evict: true,
    holders: (file) => (state.held.has(file) ? ["pod web"] : []),
    clock: { now: () => state.nowMs, monotonic: () => state.nowMs },
  });
  images.recover();
  const add = (begin: string, ...names: readonly string[]): string => {
    const digest = digestOf(begin);
    const times = { createdMs: state.nowMs, usedMs: state.nowMs };
    putImage(db, { digest, type: "root", state: "ready", config, bytes: 3, ...times });
    for (const name of names) putName(db, name, digest);
    writeFileSync(images.fileOf(digest), "abc");
    return images.fileOf(digest);
  };
  return { db, images, state, add, directory };
}

test("an image is found by name, tag, registry, digest and the beginning of a digest", (t) => {
  const { images, add } = openImages();
  const file = add("abcd1", "docker.io/library/app:latest", "docker.io/library/app:1");
  add("abcd2", "a.example/app:1");
  const first = digestOf("abcd1");
  for (const reference of [
    "app",
    "app:1",
    "docker.io/library/app",
    "library/app:1",
    first,
    first.slice(0, 20),
    "abcd1",
    `app@${first}`,
  ])
    t.like(images.findImage(reference), { digest: first, file, type: "root", config }, reference);
  t.is(images.findImage("a.example/app:1").digest, digestOf("abcd2"));
  for (const reference of ["app:2", "a.example/app", `b.example/app@${first}`, "ffff", "abc"])
    t.true(
      isPodnetError(
        t.throws(() => images.findImage(reference)),
        "IMAGE_NOT_FOUND",
      ),
      reference,
    );
  const hint = t.throws(() => images.findImage("apq")) as Error & { hint?: string };
  t.regex(hint.hint ?? "", /^Did you mean "app"\? See podnet image list/);
  const both = t.throws(() => images.findImage("abcd"));
  t.true(isPodnetError(both, "INVALID_ARGUMENT"));
  t.regex(both.message, /Several images/);
});

test("a name leads to one image, and an image may have several or none", (t) => {
  const { images, add } = openImages();
  add("a1", "app:latest");
  add("b2");
  t.deepEqual(images.tag("a1000", "app:1").names, ["app:1", "app:latest"]);
  t.deepEqual(images.tag("b2000", "app").names, ["app:latest"]);
  t.deepEqual(images.findImage("app:1").names, ["app:1"]);
  t.true(images.untag("app"));
  t.false(images.untag("app"));
  t.deepEqual(images.findImage("b2000").names, []);
  const refused = t.throws(() => images.tag("a1000", `app@${digestOf("a1")}`));
  t.true(isPodnetError(refused, "INVALID_ARGUMENT"));
});

test("an image that a pod uses is neither removed nor pruned", (t) => {
  const { images, add, state, db } = openImages();
  const file = add("a1");
  const named = add("b2", "app:latest");
  state.held.add(file);
  const refused = t.throws(() => images.remove("a100"));
  t.true(isPodnetError(refused, "IMAGE_IN_USE"));
  t.deepEqual(images.prune({ all: false, untilMs: undefined }, false), []);
  t.true(existsSync(file));
  state.held.clear();
  const choice = { all: false, untilMs: undefined };
  t.is(images.prune(choice, true).length, 1);
  t.true(existsSync(file), "a plan removes nothing");
  t.is(images.prune(choice, false).length, 1);
  t.false(existsSync(file));
  t.is(images.prune({ all: true, untilMs: 1000 }, false).length, 0, "it was used at 1000");
  state.nowMs = 5000;
  images.used(images.findImage("app"));
  t.is(images.prune({ all: true, untilMs: 4000 }, false).length, 0);
  images.remove("app");
  t.false(existsSync(named));
  t.is(listImages(db).length, 0);
});

test("a start removes files of images that were being stored or removed", (t) => {
  const { add, db, directory } = openImages();
  const [storing, removing, ready] = [add("a1"), add("b2", "app:1"), add("c3")];
  db.run("UPDATE images SET state = 'storing' WHERE digest = ?", digestOf("a1"));
  db.run("DELETE FROM image_names");
  db.run("UPDATE images SET state = 'removing' WHERE digest = ?", digestOf("b2"));
  db.close();
  const again = openImages(directory);
  t.deepEqual([storing, removing, ready].map(existsSync), [false, false, true]);
  t.deepEqual(
    again.images.list().map(({ digest }) => digest),
    [digestOf("c3")],
  );
});
