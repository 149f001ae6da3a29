import { execFile, execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import test from "ava";
import { listJobs } from "../../daemon/images/store.ts";
import { Database } from "../../daemon/store/database.ts";
import { membersOf } from "../../hypervisor/jail/cgroup.ts";
import { isSameProcess } from "../../linux/processes/proc.ts";
import { hostileWorker } from "../lab/hostile-worker.ts";
import { openImageStore, removeImageStores } from "../lab/image-store.ts";
import { startRegistry } from "../lab/registry.ts";
import { tarOf, writeLayout } from "../unit/images/image-archive.ts";

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
  const points = [
    ["file:make job's directory:after#1", "pull"],
    ["spawn:podnet-images:after#1", "pull"],
    ["commit:update image_jobs:after#1", "pull"],
    ["file:store image:before#1", "pull"],
    ["file:store image:after#1", "import"],
    ["file:keep layer:after#1", "pull"],
    ["file:remove job's directory:before#1", "import"],
  ] as const;
  for (const [point, act] of points) {
    const directory = fresh();
    const what = act === "pull" ? "localhost:5011/app:1" : archive;
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
