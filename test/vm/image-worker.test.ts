import { execFile, execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import type { PodnetError } from "../../core/errors.ts";
import { listJobs } from "../../daemon/images/store.ts";
import { Database } from "../../daemon/store/database.ts";
import { membersOf } from "../../hypervisor/jail/cgroup.ts";
import { isSameProcess } from "../../linux/processes/proc.ts";
import { hostileWorker } from "../lab/hostile-worker.ts";
import { openImageStore, removeImageStores, workerUid } from "../lab/image-store.ts";
import { startRegistry } from "../lab/registry.ts";
import { buildProbe } from "../peers/jail-probe.ts";
import { tarOf, unpack, writeLayout } from "../unit/images/image-archive.ts";

// What podnetd does about workers that are hostile or need too much, and when it is killed itself.

const checkout = path.resolve(import.meta.dirname, "../..");
const top = mkdtempSync(path.join(tmpdir(), "podnet-worker-"));
test.after.always(() => {
  removeImageStores(top);
});
let made = 0;
const fresh = (): string => {
  const directory = path.join(top, `${(made += 1)}`);
  mkdirSync(directory);
  return directory;
};

/** A layout with an image of one file. */
function makeLayout(bytes: Buffer): string {
  const directory = fresh();
  mkdirSync(path.join(directory, "files"));
  writeFileSync(path.join(directory, "files/text"), bytes);
  const layout = path.join(directory, "layout");
  writeLayout(layout, { layers: [tarOf(path.join(directory, "files"))], compression: "none" });
  return layout;
}

/** An archive of such a layout. */
function makeArchive(bytes: Buffer): string {
  const archive = path.join(fresh(), "image.tar");
  execFileSync("tar", ["-C", makeLayout(bytes), "-cf", archive, "."]);
  return archive;
}

const archive = makeArchive(randomBytes(100_000));

/** A podnetd of its own does a job with these failpoints. Resolves to the signal that ended it. */
const doJob = (failpoints: string, ...words: readonly string[]): Promise<string | undefined> =>
  new Promise((resolve) => {
    const script = path.join(checkout, "test/lab/image-job.ts");
    const env = { ...process.env, PODNET_FAILPOINTS: failpoints };
    execFile(process.execPath, [script, ...words], { env }, (error) =>
      resolve(error === null ? undefined : (error.signal ?? error.message)),
    );
  });

const workerRuns = "commit:update image_jobs:after#1=kill";

test.serial("a worker that left its group ends with its job, and with its podnetd", async (t) => {
  const { importIt, left, db } = await openImageStore(fresh(), { program: hostileWorker });
  const stop = new AbortController();
  const imported = importIt({ path: archive }, "x", stop.signal);
  for (;;) {
    const [job] = listJobs(db);
    if (job?.worker !== undefined) {
      for (const { path: group } of job.cgroups) t.true(membersOf(group).includes(job.worker.pid));
      break;
    }
    await delay(20);
  }
  stop.abort();
  await t.throwsAsync(imported, { code: "CANCELLED" });
  t.deepEqual([listJobs(db), left()], [[], []]);

  const directory = fresh();
  t.is(await doJob(workerRuns, directory, "hostile", archive), "SIGKILL");
  const found = Database.openIn(directory);
  const { pid, startTime } = listJobs(found)[0]?.worker ?? { pid: 0, startTime: "" };
  found.close();
  t.true(isSameProcess(pid, startTime), "it runs on");
  const next = await openImageStore(directory);
  t.false(isSameProcess(pid, startTime));
  t.deepEqual([listJobs(next.db), next.left(), next.images.list()], [[], [], []]);
});

test.serial("a podnetd that was killed within a pull or an import leaves nothing", async (t) => {
  await using registry = await startRegistry({ directory: fresh(), port: 5011 });
  await registry.push(makeLayout(randomBytes(100_000)), "app", "1");
  const root = path.join(fresh(), "root");
  mkdirSync(path.join(root, "etc"), { recursive: true });
  const points = [
    ["spawn:tar:after#1", "import", root],
    ["file:take archive of directory:before#1", "import", root],
    ["file:make job's directory:after#1", "pull"],
    ["spawn:podnet-images:after#1", "pull"],
    ["commit:update image_jobs:after#1", "pull"],
    ["file:store image:before#1", "pull"],
    ["file:store image:after#1", "import"],
    ["file:keep layer:after#1", "pull"],
    ["file:remove job's directory:before#1", "import"],
  ] as const;
  for (const [point, act, given = archive] of points) {
    const directory = fresh();
    const what = act === "pull" ? "localhost:5011/app:1" : given;
    t.is(await doJob(`${point}=kill`, directory, act, what), "SIGKILL", point);
    const { db, left, images, pull, config } = await openImageStore(directory, {
      insecure: ["localhost:5011"],
    });
    t.deepEqual([listJobs(db), left()], [[], []], point);
    const isStored = /keep layer|remove job/.test(point);
    t.is(images.list().length, isStored ? 1 : 0, point);
    const files = execFileSync("find", [config.directory, "-name", "*.img"], { encoding: "utf8" });
    t.is(files.split("\n").length - 1, images.list().length, point);
    t.true(existsSync((await pull("localhost:5011/app:1")).file), point);
  }
});

test.serial("a worker that needs more memory than it may have is ended", async (t) => {
  const greedy = "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1));";
  const program = { argv: [process.execPath, "-e", greedy], files: [] } as const;
  const { importIt, left, db } = await openImageStore(fresh(), { program, memoryMib: 64 });
  const thrown = await t.throwsAsync(importIt({ path: archive }, "x"), { code: "LIMIT_REACHED" });
  t.regex(thrown.message, /64 MiB of memory/);
  t.deepEqual([listJobs(db), left()], [[], []]);
});

/** The program "tar" is the probe until this ends. */
function probeInPlaceOfTar(probe: string): Disposable {
  const programs = fresh();
  copyFileSync(probe, path.join(programs, "tar"));
  const { PATH: usual = "" } = process.env;
  process.env["PATH"] = `${programs}:${usual}`;
  return {
    [Symbol.dispose]: () => {
      process.env["PATH"] = usual;
    },
  };
}

test.serial("a directory is packed by a program that reads it, and nothing else", async (t) => {
  const root = path.join(fresh(), "root");
  mkdirSync(path.join(root, "etc"), { recursive: true });
  mkdirSync(path.join(root, "mounted"));
  execFileSync("mount", ["-n", "-t", "tmpfs", "none", path.join(root, "mounted")]);
  writeFileSync(path.join(root, "mounted/other"), "other");
  const secret = path.join(root, "etc/shadow");
  writeFileSync(secret, "secret", { mode: 0o600 });
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    execFileSync("umount", ["-n", path.join(root, "mounted")]);
  });
  const { port } = server.address() as AddressInfo;
  const tree = "/podnet-tree";
  const allowed = [`read=${tree}/etc/shadow`, "create=made", `list=${tree}`];
  const refused = [
    `write=${tree}/etc/shadow`,
    `create=${tree}/made`,
    `chmod=${tree}/etc/shadow`,
    `read=${tree}/mounted/other`,
    `handle=${tree}/etc/shadow`,
    `read=${tree}/../etc/passwd`,
    `read=${secret}`,
    "read=/etc/passwd",
    `tcp=${port}`,
    "netlink=",
    "packet=",
    "root=",
    "mount=/",
    "chroot=/podnet-tree",
    "userns=",
    "bomb=32",
  ];
  writeFileSync(path.join(root, "attempts"), [...allowed, ...refused].join("\n"));
  const probe = await buildProbe();
  const { importIt, left, db } = await openImageStore(fresh());
  const usual = probeInPlaceOfTar(probe);
  const thrown = await t.throwsAsync<PodnetError>(importIt({ path: root }, "x"), {
    code: "IMAGE_UNREADABLE",
  });
  usual[Symbol.dispose]();
  const said = String(thrown.details["said"]).split("\n");
  for (const attempt of allowed) t.true(said.includes(`${attempt}: ok`), said.join("\n"));
  for (const attempt of refused) {
    const [line = ""] = said.filter((each) => each.startsWith(`${attempt}: `));
    t.regex(line, /: (?!ok$)/, attempt);
  }
  t.true(said.includes(`user ${workerUid}`));
  t.deepEqual([listJobs(db), left()], [[], []]);

  // By tar itself, with a file that is root's alone, and without what is mounted below.
  const { file } = await importIt({ path: root }, "x");
  const into = path.join(fresh(), "into");
  unpack(file, into);
  t.is(readFileSync(path.join(into, "etc/shadow"), "utf8"), "secret");
  t.is(statSync(path.join(into, "etc/shadow")).mode & 0o777, 0o600);
  t.deepEqual(readdirSync(path.join(into, "mounted")), []);
});

test.serial(
  "what packs a directory and never ends is ended when the import is given up",
  async (t) => {
    const root = path.join(fresh(), "root");
    mkdirSync(path.join(root, "etc"), { recursive: true });
    writeFileSync(path.join(root, "attempts"), "sleep=1234");
    using _ = probeInPlaceOfTar(await buildProbe());
    const { importIt, left, db } = await openImageStore(fresh());
    const stop = new AbortController();
    const imported = importIt({ path: root }, "x", stop.signal);
    while (listJobs(db)[0]?.worker === undefined) await delay(20);
    const { pid, startTime } = listJobs(db)[0]?.worker ?? { pid: 0, startTime: "" };
    t.true(isSameProcess(pid, startTime));
    stop.abort();
    await t.throwsAsync(imported, { code: "CANCELLED" });
    t.false(isSameProcess(pid, startTime));
    t.deepEqual([listJobs(db), left()], [[], []]);
  },
);

test.serial("a directory that is larger than images may be leaves nothing", async (t) => {
  const root = path.join(fresh(), "root");
  mkdirSync(path.join(root, "etc"), { recursive: true });
  for (let i = 0; i < 4; i += 1) writeFileSync(path.join(root, `etc/${i}`), randomBytes(2 ** 20));
  const { importIt, left, db, images } = await openImageStore(fresh(), { mostImageBytes: 2 ** 20 });
  await t.throwsAsync(importIt({ path: root }, "x"), { code: "LIMIT_REACHED" });
  t.deepEqual([listJobs(db), left(), images.list()], [[], [], []]);
});
