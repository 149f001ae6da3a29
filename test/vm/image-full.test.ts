import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test, { type ExecutionContext } from "ava";
import { listJobs } from "../../daemon/images/store.ts";
import { openImageStore, removeImageStores } from "../lab/image-store.ts";
import { startRegistry } from "../lab/registry.ts";
import { tarOf, writeLayout } from "../unit/images/image-archive.ts";

// Imports and pulls whose store is on a file system without room for them.

const top = mkdtempSync(path.join(tmpdir(), "podnet-image-full-"));
const mounted: string[] = [];
test.after.always(() => {
  for (const directory of mounted) execFileSync("umount", ["-n", "-l", directory]);
  removeImageStores(top);
});
let made = 0;
const fresh = (): string => {
  const directory = path.join(top, `${(made += 1)}`);
  mkdirSync(directory);
  return directory;
};

const mount = (options: string, directory: string): void => {
  execFileSync("mount", ["-n", "-t", "tmpfs", "-o", `${options},mode=700`, "tmpfs", directory]);
};

/** A store on a file system of its own. */
async function openSmall(options: string, insecure: readonly string[] = []) {
  const directory = fresh();
  mount(options, directory);
  mounted.push(directory);
  const store = await openImageStore(directory, { insecure, mostBytes: 2 ** 32 });
  /** Gives it room. */
  const grow = (): void => mount("remount,size=256m,nr_inodes=10000", directory);
  return { ...store, grow };
}

/** A root directory that lz4 cannot make smaller, as itself, an archive and a layout. */
function makeImage() {
  const directory = fresh();
  const root = path.join(directory, "root");
  mkdirSync(path.join(root, "etc"), { recursive: true });
  for (let i = 0; i < 4; i += 1) writeFileSync(path.join(root, `etc/${i}`), randomBytes(3 << 20));
  const archive = path.join(directory, "root.tar");
  writeFileSync(archive, tarOf(root));
  const layout = path.join(directory, "layout");
  writeLayout(layout, { layers: [readFileSync(archive)], compression: "none" });
  return { root, archive, layout };
}

const image = makeImage();
const insecure = ["localhost:5012"];
const upload = async function* parts(): AsyncGenerator<Uint8Array> {
  const bytes = readFileSync(image.archive);
  for (let at = 0; at < bytes.length; at += 2 ** 16) yield bytes.subarray(at, at + 2 ** 16);
};

type Store = Awaited<ReturnType<typeof openSmall>>;

/** Refused for want of room, with nothing left. Succeeds once there is some. */
async function failsThenWorks(
  t: ExecutionContext,
  store: Store,
  act: (store: Store) => Promise<{ readonly file: string }>,
  what: string,
): Promise<void> {
  const { left, db, images, grow } = store;
  const thrown = await t.throwsAsync(act(store), { code: "STATE_UNWRITABLE" }, what);
  t.is(thrown.message, "There is no room for the image", what);
  t.deepEqual([left(), listJobs(db), images.list()], [[], [], []], what);
  grow();
  t.true(existsSync((await act(store)).file), what);
  t.deepEqual([left(), listJobs(db)], [[], []], what);
}

test.serial("an image that finds no room leaves nothing, and says so", async (t) => {
  await using registry = await startRegistry({ directory: fresh(), port: 5012 });
  await registry.push(image.layout, "app", "1");
  const acts: Readonly<Record<string, (store: Store) => Promise<{ readonly file: string }>>> = {
    "an upload": ({ importIt }) => importIt({ upload: upload() }, "x"),
    "an archive": ({ importIt }) => importIt({ path: image.archive }, "x"),
    "a directory": ({ importIt }) => importIt({ path: image.root }, "x"),
    "a layout": ({ importIt }) => importIt({ path: image.layout }, "x"),
    "a pull": ({ pull }) => pull("localhost:5012/app:1"),
  };
  for (const [what, act] of Object.entries(acts))
    await failsThenWorks(t, await openSmall("size=8m", insecure), act, what);
});

test.serial("an image that finds no inode leaves nothing, and says so", async (t) => {
  const store = await openSmall("size=256m,nr_inodes=40");
  const fill = path.join(store.directory, "fill");
  mkdirSync(fill);
  try {
    for (let i = 0; ; i += 1) writeFileSync(path.join(fill, `${i}`), "");
  } catch {}
  const thrown = await t.throwsAsync(store.importIt({ path: image.archive }, "x"), {
    code: "STATE_UNWRITABLE",
  });
  t.regex(thrown.message, /room/);
  t.deepEqual([store.left(), listJobs(store.db), store.images.list()], [[], [], []]);
  store.grow();
  t.true(existsSync((await store.importIt({ path: image.archive }, "x")).file));
});
