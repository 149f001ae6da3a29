import { execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { connect, createServer as createProxy } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { inspect } from "node:util";
import test from "ava";
import { isPodnetError, type PodnetError } from "../../core/errors.ts";
import type { ImagesConfig } from "../../daemon/config/images.ts";
import type { ImageJobs } from "../../daemon/images/image-jobs.ts";
import { listJobs } from "../../daemon/images/store.ts";
import type { Digest } from "../../images/archive/digest.ts";
import type { StageProgress } from "../../images/worker/messages.ts";
import { never, openImageStore, removeImageStores } from "../lab/image-store.ts";
import { blobFile, startRegistry } from "../lab/registry.ts";
import { sha256, tarOf, unpack, writeLayout } from "../unit/images/image-archive.ts";

// podnetd's pulls and imports, with their confined workers, from Debian's registry.

const silent = (): void => {};
const neverAll = { policy: "never", mayPullFromAll: false } as const;
const missing = { policy: "missing", mayPullFromAll: false } as const;
const top = mkdtempSync(path.join(tmpdir(), "podnet-pull-"));
test.after.always(() => {
  removeImageStores(top);
});
let made = 0;
const fresh = (): string => {
  const directory = path.join(top, `${(made += 1)}`);
  mkdirSync(directory);
  return directory;
};

const openStore = (config: Partial<ImagesConfig> = {}) => openImageStore(fresh(), config);

/** A layout with an image of a few files, and its layers' archives. */
function makeLayout(text: string, ...more: readonly Buffer[]) {
  const directory = fresh();
  mkdirSync(path.join(directory, "files/etc"), { recursive: true });
  writeFileSync(path.join(directory, "files/etc/text"), text);
  const layout = path.join(directory, "layout");
  const layers = [...more, tarOf(path.join(directory, "files"))];
  const config = {
    Entrypoint: ["/bin/serve"],
    Labels: { team: "a" },
    ExposedPorts: { "80/tcp": {} },
  };
  writeLayout(layout, { layers, config, compression: "none" });
  return { layout, layers };
}

/** A layer of so many random bytes. */
function bigLayer(bytes: number): Buffer {
  const directory = fresh();
  writeFileSync(path.join(directory, "big"), randomBytes(bytes));
  return tarOf(directory);
}

/** Whether a text is in any file below a directory. */
const isIn = (directory: string, text: string): boolean =>
  spawnSync("grep", ["-raqF", text, directory]).status === 0;

const textIn = (file: string): string => {
  const into = path.join(fresh(), "root");
  unpack(file, into);
  return readFileSync(path.join(into, "etc/text"), "utf8");
};

const errorOf = async (promise: Promise<unknown>): Promise<PodnetError> => {
  const thrown: unknown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (isPodnetError(thrown)) return thrown;
  throw thrown instanceof Error ? thrown : new Error("It did not fail");
};

test.serial("an image is pulled by TLS with a password, and its layers are shared", async (t) => {
  const directory = fresh();
  const credential = "podnet:secret:1";
  await using registry = await startRegistry({ directory, port: 5001, tls: true, credential });
  const shared = bigLayer(3_000_000);
  const digest = await registry.push(makeLayout("one", shared).layout, "team/app", "1");
  await registry.push(makeLayout("two", shared).layout, "team/app", "2");
  const ca = path.join(directory, "registry.crt");
  const authFile = path.join(directory, "auth.json");
  const auth = Buffer.from(credential).toString("base64");
  writeFileSync(authFile, JSON.stringify({ auths: { "localhost:5001": { auth } } }));

  const untrusting = await openStore({ authFile });
  const refused = await errorOf(untrusting.pull("team/app:1"));
  t.is(refused.code, "REGISTRY_UNREACHABLE");
  t.regex(refused.hint ?? "", /images\.ca/);
  const unknown = await openStore({ ca });
  t.is((await errorOf(unknown.pull("team/app:1"))).code, "REGISTRY_DENIED");

  const { pull, images, left, jobs } = await openStore({ ca, authFile });
  const seen: StageProgress[] = [];
  const image = await pull("team/app:1", (progress) => seen.push(progress));
  t.is(image.digest, digest as Digest);
  t.deepEqual(image.names, ["localhost:5001/team/app:1"]);
  t.like(image.config, { entrypoint: ["/bin/serve"], exposedPorts: ["80/tcp"] });
  t.is(textIn(image.file), "one");
  t.deepEqual(
    [...new Set(seen.map(({ stage }) => stage))],
    ["waiting", "reading", "fetching", "converting"],
  );
  const fetched = (): number =>
    Math.max(...seen.map(({ stage, all }) => (stage === "fetching" ? all : 0)));
  t.true(fetched() > 3_000_000);
  seen.length = 0;
  const second = await pull("team/app:2", (progress) => seen.push(progress));
  t.true(fetched() < 100_000, "the shared layer is not fetched again");
  t.is(textIn(second.file), "two");
  t.deepEqual(left(), []);
  t.is(images.list().length, 2);
  // Only what is not there is asked for.
  const absent = await errorOf(pull("team/app:3"));
  t.is(absent.code, "IMAGE_NOT_FOUND");
  t.is((await jobs.pull("team/app:1", neverAll, silent, never)).digest, digest as Digest);
  const never1 = errorOf(jobs.pull("team/other", neverAll, silent, never));
  t.is((await never1).code, "IMAGE_NOT_FOUND");
  const foreign = errorOf(jobs.pull("b.example/x", missing, silent, never));
  t.is((await foreign).code, "PERMISSION_DENIED");
});

test.serial("a tag that moves, a damaged layer, and a damaged layer that was kept", async (t) => {
  const directory = fresh();
  await using registry = await startRegistry({ directory, port: 5001 });
  const { pull, images, config, left } = await openStore({ insecure: ["localhost:5001"] });
  const big = bigLayer(500_000);
  await registry.push(makeLayout("one", big).layout, "app", "1");
  const first = await pull("app:1");
  const moved = await registry.push(makeLayout("two", big).layout, "app", "1");
  t.is((await pull("app:1")).digest, moved as Digest);
  t.deepEqual(images.findImage(first.digest).names, [], "it has lost its name");
  const pinned = await pull(`app@${first.digest}`);
  t.is(pinned.digest, first.digest);
  t.is(images.findImage(`app@${first.digest}`).digest, first.digest);

  const kept = path.join(config.directory, "layers", sha256(big).replace(":", "-"));
  writeFileSync(kept, "other bytes");
  await registry.push(makeLayout("three", big).layout, "app", "3");
  t.is(textIn((await pull("app:3")).file), "three");
  t.true(readFileSync(kept).equals(big), "it was fetched anew");

  const bad = bigLayer(400_000);
  await registry.push(makeLayout("four", bad).layout, "app", "4");
  const file = blobFile(registry, sha256(bad));
  const bytes = readFileSync(file);
  bytes[1000] = (bytes[1000] ?? 0) ^ 1;
  writeFileSync(file, bytes);
  const damaged = await errorOf(pull("app:4"));
  t.is(damaged.code, "IMAGE_UNREADABLE");
  t.regex(damaged.message, /digest is another/);
  t.is(images.list().length, 3);
  t.deepEqual(left(), []);
  t.false(existsSync(path.join(config.directory, "layers", sha256(bad).replace(":", "-"))));
});

/** Passes connections on to the registry, and cuts each after so many bytes of its answer. */
async function openCutting(port: number, to: number, bytes: number) {
  let [cuts, asked] = [0, 0];
  const server = createProxy((socket) => {
    const other = connect(to, "127.0.0.1");
    let passed = 0;
    socket.on("error", silent).pipe(other);
    socket.on("data", (part: Buffer) => {
      if (part.includes("GET /v2/app/manifests/1 ")) asked += 1;
    });
    other.on("error", silent).on("data", (part: Buffer) => {
      passed += part.length;
      socket.write(part);
      if (passed < bytes || other.destroyed) return;
      cuts += 1;
      other.destroy();
      socket.end(() => socket.resetAndDestroy());
    });
    other.on("end", () => socket.end());
  });
  await new Promise<void>((listening) => server.listen(port, "127.0.0.1", listening));
  return {
    cuts: () => cuts,
    asked: () => asked,
    [Symbol.asyncDispose]: () => new Promise<void>((closed) => server.close(() => closed())),
  };
}

test.serial("a pull goes on where a connection was cut, once for all who ask", async (t) => {
  await using registry = await startRegistry({ directory: fresh(), port: 5001 });
  await registry.push(makeLayout("cut", bigLayer(5_000_000)).layout, "app", "1");
  await using cutting = await openCutting(5002, 5001, 1_500_000);
  const registries = ["localhost:5002"] as const;
  const { pull, db, left } = await openStore({ insecure: registries, registries });
  const [one, two] = await Promise.all([pull("app:1"), pull("localhost:5002/app:1")]);
  t.is(one.digest, two.digest);
  t.is(textIn(one.file), "cut");
  t.true(cutting.cuts() >= 3);
  t.is(cutting.asked(), 1, "the second caller waited for the first one's pull");
  t.deepEqual(listJobs(db), []);
  t.deepEqual(left(), []);
});

test.serial("a pull that is given up, or has no room or time, leaves nothing", async (t) => {
  await using registry = await startRegistry({ directory: fresh(), port: 5001 });
  await registry.push(makeLayout("x", bigLayer(6_000_000)).layout, "app", "1");
  const insecure = ["localhost:5001"];
  const given = await openStore({ insecure });
  const stop = new AbortController();
  const pulled = given.jobs.pull(
    "app:1",
    { policy: "always", mayPullFromAll: true },
    ({ stage, done }) => {
      if (stage === "fetching" && done > 0) stop.abort();
    },
    stop.signal,
  );
  t.is((await errorOf(pulled)).code, "CANCELLED");
  await given.jobs[Symbol.asyncDispose]();
  t.deepEqual([given.left(), listJobs(given.db), given.images.list()], [[], [], []]);

  const small = await openStore({ insecure, mostImageBytes: 1_000_000 });
  t.is((await errorOf(small.pull("app:1"))).code, "LIMIT_REACHED");
  const full = await openStore({ insecure, mostBytes: 1_000_000 });
  t.is((await errorOf(full.pull("app:1"))).code, "LIMIT_REACHED");
  const late = await openStore({ insecure, jobMs: 50 });
  t.is((await errorOf(late.pull("app:1"))).code, "DEADLINE_EXCEEDED");
  for (const { left, db, images } of [small, full, late])
    t.deepEqual([left(), listJobs(db), images.list()], [[], [], []]);

  const evicting = await openStore({ insecure, mostBytes: 9_000_000, evict: true });
  await evicting.pull("app:1");
  await registry.push(makeLayout("y", bigLayer(6_000_000)).layout, "app", "2");
  await evicting.pull("app:2");
  t.deepEqual(
    evicting.images.list().flatMap(({ names }) => names),
    ["localhost:5001/app:2"],
  );
});

test.serial(
  "the credential of a call is for that call alone, and is nowhere afterwards",
  async (t) => {
    const directory = fresh();
    const credential = "podnet:of-the-call-alone";
    const given = { user: "podnet", password: "of-the-call-alone" };
    await using registry = await startRegistry({ directory, port: 5001, tls: true, credential });
    await registry.push(makeLayout("one", bigLayer(3_000_000)).layout, "team/app", "1");
    const authFile = path.join(directory, "auth.json");
    const wrong = Buffer.from("podnet:other").toString("base64");
    writeFileSync(authFile, JSON.stringify({ auths: { "localhost:5001": { auth: wrong } } }));
    const store = await openStore({ ca: path.join(directory, "registry.crt"), authFile });
    const { pull, left } = store;
    t.is((await errorOf(pull("team/app:1"))).code, "REGISTRY_DENIED");
    const bad = await errorOf(pull("team/app:1", silent, { user: "podnet", password: "not-this" }));
    t.is(bad.code, "REGISTRY_DENIED");
    t.false(inspect(bad, { depth: 9 }).includes("not-this"));

    // Meanwhile no process has it on its command line, and no file of podnetd's has it.
    const seen: string[] = [];
    const look = (): void => {
      const words = execFileSync(
        "sh",
        ["-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; true"],
        {
          encoding: "latin1",
          stdio: ["ignore", "pipe", "ignore"],
        },
      );
      if (words.includes(given.password)) seen.push("process");
      if (isIn(store.directory, given.password)) seen.push("file");
    };
    const secret = pull("team/app:1", look, given);
    // One without it does not join, and is not served by it.
    const others = errorOf(pull("team/app:1"));
    t.is(textIn((await secret).file), "one");
    t.is((await others).code, "REGISTRY_DENIED");
    look();
    t.deepEqual(seen, []);
    t.is(
      (await errorOf(pull("team/app:1"))).code,
      "REGISTRY_DENIED",
      "the next call has podnetd's",
    );
    t.deepEqual(left(), []);
  },
);

test.serial("credentials do not follow a redirect to another host", async (t) => {
  const credentials: string[] = [];
  const listen = async (port: number, server: Server): Promise<Server> => {
    await new Promise<void>((listening) => server.listen(port, "127.0.0.1", listening));
    return server;
  };
  const other = await listen(
    5004,
    createServer((request, answer) => {
      credentials.push(request.headers.authorization ?? "none");
      answer.writeHead(404).end();
    }),
  );
  const first = await listen(
    5003,
    createServer((request, answer) => {
      if (request.headers.authorization === undefined)
        answer.writeHead(401, { "www-authenticate": 'Basic realm="x"' }).end();
      else answer.writeHead(307, { location: `http://127.0.0.1:5004${request.url}` }).end();
    }),
  );
  const authFile = path.join(fresh(), "auth.json");
  const auth = Buffer.from("a:b").toString("base64");
  writeFileSync(authFile, JSON.stringify({ auths: { "localhost:5003": { auth } } }));
  const registries = ["localhost:5003"] as const;
  const { pull } = await openStore({ insecure: registries, registries, authFile });
  t.is((await errorOf(pull("app"))).code, "IMAGE_NOT_FOUND");
  t.deepEqual(credentials, ["none"]);
  first.removeAllListeners("request").on("request", (_request, answer) => {
    answer.writeHead(200, { "content-type": "application/json" }).end("x".repeat(5_000_000));
  });
  t.is((await errorOf(pull("app"))).code, "REGISTRY_FAILED");
  first.close();
  other.close();
});

test.serial("an upload, an archive, a layout and a root directory are imported", async (t) => {
  const { jobs, left, images } = await openStore();
  const { layout, layers } = makeLayout("layout");
  const archive = path.join(fresh(), "image.tar");
  execFileSync("tar", ["-C", layout, "-cf", archive, "."]);
  const importIt = (source: Parameters<ImageJobs["import"]>[0], name: string) =>
    jobs.import(source, { name, choose: "" }, silent, never);
  const upload = (async function* parts() {
    const bytes = readFileSync(archive);
    for (let at = 0; at < bytes.length; at += 1000) yield bytes.subarray(at, at + 1000);
  })();
  const uploaded = await importIt({ upload }, "uploaded");
  t.is(textIn(uploaded.file), "layout");
  for (const at of [archive, layout])
    t.is((await importIt({ path: at }, "")).digest, uploaded.digest);
  const root = await importIt({ path: path.join(path.dirname(layout), "files") }, "root:1");
  t.is(textIn(root.file), "layout");
  t.deepEqual(root.names, ["root:1"]);
  const tar = path.join(fresh(), "root.tar");
  writeFileSync(tar, layers[0] ?? "");
  t.is(textIn((await importIt({ path: tar }, "tar")).file), "layout");
  for (const [at, code] of [
    ["/nowhere", "IMAGE_MISSING"],
    ["relative", "IMAGE_MISSING"],
    ["/dev/null", "IMAGE_MISSING"],
  ] as const)
    t.is((await errorOf(importIt({ path: at }, "x"))).code, code);
  const at = fresh();
  for (const name of ["empty", "archives", "cut", "program"]) mkdirSync(path.join(at, name));
  writeFileSync(path.join(at, "archives/image.tar"), "");
  writeFileSync(path.join(at, "cut/oci-layout"), "{}");
  writeFileSync(path.join(at, "program/app"), "#!/bin/sh\n", { mode: 0o755 });
  writeFileSync(path.join(at, "disk.qcow2"), "QFI\u00fb".padEnd(4096), "latin1");
  writeFileSync(path.join(at, "nothing"), "");
  for (const [name, what] of [
    ["empty", /^The directory is empty, not a container image$/],
    ["archives", /^The directory is neither an OCI layout nor a root directory, not/],
    ["cut", /^The directory is an OCI layout without its index\.json/],
    ["nothing", /^The file is empty, not a container image$/],
  ] as const) {
    const {
      code,
      message,
      hint = "",
    } = await errorOf(importIt({ path: path.join(at, name) }, "x"));
    t.is(code, "IMAGE_UNREADABLE", name);
    t.regex(message, what);
    t.regex(hint, /^Expected an OCI layout/);
  }
  const disk = await errorOf(importIt({ path: path.join(at, "disk.qcow2") }, "x"));
  t.is(disk.code, "IMAGE_UNREADABLE");
  t.regex(disk.message, /^The disk is qcow2 of version \d+, which is not known$/);
  t.truthy(await importIt({ path: path.join(at, "program") }, "program"));
  const nothing = (async function* parts() {})();
  t.is(
    (await errorOf(importIt({ upload: nothing }, "x"))).message,
    "The file is empty, not a container image",
  );
  const hostile = path.join(fresh(), "hostile.tar");
  execFileSync("tar", [
    "-P",
    "-C",
    layout,
    "--transform",
    "s,^,../,",
    "-cf",
    hostile,
    "index.json",
  ]);
  t.is((await errorOf(importIt({ path: hostile }, "x"))).code, "IMAGE_UNREADABLE");
  t.deepEqual(left(), []);
  t.true(images.list().length >= 2);
});
